"""RankTable: one rank's flight recorder dump reduced to what verdicts need, some kilobytes instead of megabytes.

Reduced where the data is: per call a group, a sequence number, a signature and a time, in flat arrays; stack frames of
the newest calls only. `to_json`/`from_json` carry it between machines.
"""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any

DONE, STARTED, P2P, SCHEDULED = 1, 2, 4, 0  # flags of a call
KEPT_CALLS = 4  # newest calls kept with their frames, per group
KEPT_FRAMES = 24


@dataclass(frozen=True)
class Frame:
    name: str
    filename: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} ({self.filename}:{self.line})"


@dataclass(frozen=True)
class Signature:
    """What must agree between the members of a group at one sequence number."""

    op: str  # all_reduce, without the library's prefix
    numel_in: int
    numel_out: int
    dtype: str
    sizes: str  # as recorded, for people: `[[1025]] → [[1025]]`

    def __str__(self) -> str:
        return f"{self.op} {self.sizes} {self.dtype}".rstrip()

    @property
    def checksum(self) -> int:
        """The same on all machines: equal for calls that fit together."""
        return zlib.crc32(repr((self.op, self.numel_in, self.numel_out, self.dtype)).encode())


@dataclass(frozen=True)
class GroupView:
    """One process group as one rank saw it. Sequence numbers count collectives; -1 where unknown."""

    name: str
    desc: str
    members: tuple[int, ...]  # global ranks; empty where the dump does not tell
    enqueued: int
    started: int
    completed: int
    first: int = -1  # oldest and newest recorded sequence number of a collective
    last: int = -1
    digest: int = 0  # of all (sequence number, signature) between them: equal digests, equal calls


@dataclass(frozen=True)
class Call:
    """One of the newest calls, with its stack."""

    group: int  # index into RankTable.groups
    seq: int
    signature: Signature
    flags: int
    created_ns: int
    started_ns: int | None
    frames: tuple[Frame, ...]
    thread: str = ""
    peer: tuple[int, int] | None = None  # (source, destination) as group ranks, of send and recv

    @property
    def done(self) -> bool:
        return bool(self.flags & DONE)


@dataclass(frozen=True)
class RankTable:
    """One dump. The arrays run over the recorded calls in the order in which the rank made them."""

    rank: int | None
    where: str
    library: str  # nccl, gloo, hccl, mccl, ucc or ""
    version: str
    groups: tuple[GroupView, ...]
    signatures: tuple[Signature, ...]
    group_of: array[int]  # 'H', index into groups
    seq_of: array[int]  # 'q'; of send and recv the p2p sequence number
    signature_of: array[int]  # 'H', index into signatures
    flags_of: array[int]  # 'B'
    created_of: array[int]  # 'q', nanoseconds since the epoch
    newest: tuple[Call, ...]
    threads: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # group index -> names of issuing threads
    truncated: bool = False
    library_version: str = ""

    @property
    def newest_ns(self) -> int:
        return max(self.created_of, default=0)

    def calls_of(self, group: int) -> dict[int, list[Signature]]:
        """sequence number → signatures of the collectives of one group (several where calls were coalesced)."""
        calls: dict[int, list[Signature]] = {}
        for index, owner in enumerate(self.group_of):
            if owner == group and not self.flags_of[index] & P2P:
                calls.setdefault(self.seq_of[index], []).append(self.signatures[self.signature_of[index]])
        return calls

    def to_json(self) -> dict[str, Any]:
        plain = {key: getattr(self, key) for key in _PLAIN}
        frames = _distinct(self.newest)
        return {
            **plain,
            "groups": [asdict(group) for group in self.groups],
            "signatures": [list(asdict(one).values()) for one in self.signatures],
            "frames": [[frame.name, frame.filename, frame.line] for frame in frames],
            "newest": [self._plain(call, frames) for call in self.newest],
            "threads": {str(group): list(names) for group, names in self.threads.items()},
            "arrays": {name: _packed(getattr(self, name), code) for name, code in _ARRAYS.items()},
        }

    def _plain(self, call: Call, frames: Mapping[Frame, int]) -> dict[str, Any]:
        references = {
            "signature": self.signatures.index(call.signature),
            "frames": [frames[one] for one in call.frames],
        }
        return {**vars(call), **references}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> RankTable:
        """Raises ValueError, KeyError or TypeError when the document is not of this form."""
        arrays = {name: _unpacked(record["arrays"][name], code) for name, code in _ARRAYS.items()}
        frames = [Frame(*frame) for frame in record["frames"]]
        groups = tuple(GroupView(**{**one, "members": tuple(one["members"])}) for one in record["groups"])
        signatures = tuple(Signature(*one) for one in record["signatures"])
        _check(arrays, len(groups), len(signatures))
        plain: dict[str, Any] = {key: record[key] for key in _PLAIN}
        return cls(
            **plain,
            groups=groups,
            signatures=signatures,
            newest=tuple(_call(one, signatures, frames) for one in record["newest"]),
            threads={int(group): tuple(names) for group, names in record["threads"].items()},
            group_of=arrays["group_of"],
            seq_of=arrays["seq_of"],
            signature_of=arrays["signature_of"],
            flags_of=arrays["flags_of"],
            created_of=arrays["created_of"],
        )


_PLAIN = ("rank", "where", "library", "version", "truncated", "library_version")
_ARRAYS = {"group_of": "H", "seq_of": "q", "signature_of": "H", "flags_of": "B", "created_of": "q"}
_DELTA = ("q",)  # kept as differences: small numbers compress well
_MAX_CALLS = 1 << 20


def _packed(values: array[int], code: str) -> str:
    if code in _DELTA:
        values = array(code, (now - before for before, now in zip([0, *values], values, strict=False)))
    return base64.b64encode(zlib.compress(values.tobytes(), 6)).decode()


def _unpacked(text: str, code: str) -> array[int]:
    values: array[int] = array(code)
    unzip = zlib.decompressobj()
    data = unzip.decompress(base64.b64decode(text), _MAX_CALLS * values.itemsize)
    if unzip.unconsumed_tail:
        raise ValueError("more calls than a recorder holds")
    values.frombytes(data)
    if code in _DELTA:
        values = array(code, accumulate(values))
    return values


def _check(arrays: Mapping[str, array[int]], groups: int, signatures: int) -> None:
    if len({len(values) for values in arrays.values()}) != 1:
        raise ValueError("the columns differ in length")
    if max(arrays["group_of"], default=-1) >= groups or max(arrays["signature_of"], default=-1) >= signatures:
        raise ValueError("a call refers to a group or signature that is not there")


def _distinct(calls: Sequence[Call]) -> dict[Frame, int]:
    """The frames of all calls, each with its number: neighbouring calls share most of their stacks."""
    frames = dict.fromkeys(frame for call in calls for frame in call.frames)
    return {frame: number for number, frame in enumerate(frames)}


def _call(record: Mapping[str, Any], signatures: Sequence[Signature], frames: Sequence[Frame]) -> Call:
    peer = record["peer"]
    read = {
        "signature": signatures[record["signature"]],
        "frames": tuple(frames[number] for number in record["frames"]),
        "peer": (int(peer[0]), int(peer[1])) if peer else None,
    }
    return Call(**{**record, **read})


def newest_calls(table: RankTable, group: int) -> Sequence[Call]:
    """The kept calls of one group, oldest first."""
    return [call for call in table.newest if call.group == group]
