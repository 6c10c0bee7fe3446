"""RankTable: one rank's flight recorder dump reduced to what verdicts need, some kilobytes instead of megabytes.

Reduced where the data is: per call a group, a sequence number, a signature and a time, in flat arrays; stack frames of
the newest calls only. `to_json`/`from_json` carry it between machines.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from doctor.evidence.columns import PackedColumns
from launcher.common.fields import from_fields

DONE, STARTED, P2P, SCHEDULED = 1, 2, 4, 0  # flags of a call
KEPT_CALLS = 4  # newest calls kept with their frames, per group
KEPT_FRAMES = 24
_MAX_RANKS = 1 << 20


@dataclass(frozen=True)
class Frame:
    name: str
    filename: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} ({self.filename}:{self.line})"


_UNEVEN = frozenset(
    ("alltoall", "alltoallv", "alltoallbase", "gather", "scatter", "send", "recv", "coalesced", "barrier")
)


def may_be_uneven(op: str) -> bool:
    """Whether members may give other sizes to this operation, or its root alone gives one. In anybody's spelling."""
    return op.lower().replace("_", "") in _UNEVEN


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


def fold_ranks(ranks: Sequence[int]) -> str:
    """Sorted ranks as runs with equal steps: thousands of members in a few characters, equal for equal groups."""
    if isinstance(ranks, range) and ranks.step == 1 and len(ranks) > 1:
        return f"{ranks[0]}-{ranks[-1]}"
    runs, start = [], 0
    while start < len(ranks):
        end = start + 1
        step = ranks[end] - ranks[start] if end < len(ranks) else 1
        while end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        if end - start == 2 and step > 1:
            end = start + 1
        first, last = ranks[start], ranks[end - 1]
        runs.append(str(first) if first == last else f"{first}-{last}" + (f"/{step}" if step > 1 else ""))
        start = end
    return ",".join(runs)


@lru_cache(maxsize=1 << 16)
def unfold_ranks(text: str) -> tuple[int, ...]:
    """The inverse of `fold_ranks`. Raises ValueError for other text, or more ranks than there are on earth."""
    ranks: list[int] = []
    for run in filter(None, text.split(",")):
        span, _, step = run.partition("/")
        first, _, last = span.partition("-")
        members = range(int(first), int(last or first) + 1, int(step or 1))
        if len(ranks) + len(members) > _MAX_RANKS:
            raise ValueError("a group of more ranks than any job has")
        ranks += members
    return tuple(ranks)


def up_to_largest(ranks: Iterable[int]) -> range:
    """The ranks that a job must have, from 0 to the largest of `ranks`; numbers that no job has are damaged text."""
    return range(max((rank for rank in ranks if rank < _MAX_RANKS), default=-1) + 1)


@dataclass(frozen=True)
class GroupView:
    """One process group as one rank saw it. Sequence numbers count collectives; -1 where unknown."""

    name: str
    desc: str
    ranks: str  # global ranks of the members, folded (`0-7,16-56/8`); empty where the dump does not tell
    enqueued: int
    started: int
    completed: int
    first: int = -1  # oldest and newest recorded sequence number of a collective
    last: int = -1
    digest: int = 0  # of all (sequence number, signature) between them: equal digests, equal calls

    @property
    def members(self) -> tuple[int, ...]:
        """The members' global ranks; the same object for equal groups."""
        return unfold_ranks(self.ranks)


@dataclass(frozen=True)
class Call:
    """One of the newest calls, with its stack."""

    group: int  # index into RankTable.groups
    seq: int
    signature: Signature
    flags: int
    created_ns: int
    frames: tuple[Frame, ...]
    peer: tuple[int, int] | None = None  # (source, destination) as group ranks, of send and recv

    @property
    def done(self) -> bool:
        return bool(self.flags & DONE)


@dataclass(frozen=True)
class RankTable:
    """One dump. `calls` holds all recorded calls, `newest` the last of each group with their stacks."""

    rank: int | None
    where: str
    library: str  # nccl, gloo, hccl, mccl, ucc or ""
    version: str
    groups: tuple[GroupView, ...]
    signatures: tuple[Signature, ...]
    calls: PackedColumns
    newest: tuple[Call, ...]
    threads: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # group index -> names of issuing threads
    truncated: bool = False
    library_version: str = ""

    @property
    def newest_ns(self) -> int:
        return max(self.calls.unpack().created, default=0)

    def calls_of(self, group: int) -> dict[int, list[Signature]]:
        """sequence number → signatures of the collectives of one group (several where calls were coalesced)."""
        calls: dict[int, list[Signature]] = {}
        columns = self.calls.unpack()
        for owner, seq, signature, flags in zip(*columns[:4], strict=True):
            if owner == group and not flags & P2P:
                calls.setdefault(seq, []).append(self.signatures[signature])
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
            "calls": self.calls.to_json(),
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
        frames = [Frame(*frame) for frame in record["frames"]]
        groups = tuple(from_fields(GroupView, one) for one in record["groups"])
        signatures = tuple(Signature(*one) for one in record["signatures"])
        plain: dict[str, Any] = {key: record[key] for key in _PLAIN}
        return cls(
            **plain,
            groups=groups,
            signatures=signatures,
            newest=tuple(_call(one, signatures, frames) for one in record["newest"]),
            threads={int(group): tuple(names) for group, names in record["threads"].items()},
            calls=PackedColumns.from_json(record["calls"], len(groups), len(signatures)),
        )


_PLAIN = ("rank", "where", "library", "version", "truncated", "library_version")


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
    return from_fields(Call, record, **read)
