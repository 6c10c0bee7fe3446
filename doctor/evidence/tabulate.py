"""A dump's entries → RankTable: the reduction that runs on every node, for thousands of entries in milliseconds."""

from __future__ import annotations

import marshal
import math
import re
import zlib
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from doctor.evidence.columns import Columns
from doctor.evidence.rank_table import (
    DONE,
    KEPT_CALLS,
    KEPT_FRAMES,
    P2P,
    SCHEDULED,
    STARTED,
    Call,
    Frame,
    GroupView,
    RankTable,
    Signature,
    fold_ranks,
    may_be_uneven,
)

Entry = Mapping[str, Any]
_SIZE_IN = frozenset({"all_reduce", "broadcast", "reduce", "reduce_scatter", "_reduce_scatter_base"})
_SIGNED = ("profiling_name", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
_STATE_FIELDS = ("state", "retired", "is_p2p", "started", "completed")
_FIELDS = (
    *_SIGNED,
    *("process_group", "state", "retired", "is_p2p", "collective_seq_id", "p2p_seq_id", "time_created_ns"),
    *("thread_id", "thread_name", "time_discovered_started_ns", "time_discovered_completed_ns"),
)
_PEER = re.compile(r"(send|recv)\s+(\d+)\s*(->|<-)\s*-?(\d+)")


def tabulate(dump: Mapping[str, Any], rank: int | None, where: str, truncated: bool = False) -> RankTable:
    """Reduce one normalised dump. Raises TypeError or OverflowError for one that no recorder wrote."""
    return _Builder(dump, truncated).table(rank, where)


class _Builder:
    """The columns of a RankTable: every distinct value is looked at once, the rest is done in bulk."""

    def __init__(self, dump: Mapping[str, Any], truncated: bool) -> None:
        self.dump, self.truncated = dump, truncated
        self.entries: list[Entry] = dump["entries"]
        self.columns = _columns(self.entries)
        self.groups: dict[tuple[str, str], int] = {}
        self.pg_ids: dict[int, Any] = {}
        self.signatures: dict[Signature, int] = {}
        self.libraries: set[str] = set()
        self.flags = array("B", self.indexed(self.states(), self.flag))
        self.seqs = _whole_array(self.sequences(), -1)
        self.created = _whole_array(self.columns["time_created_ns"], 0)
        self.group_of = array("H", self.indexed(map(_plain_pair, self.columns["process_group"]), self.group))
        self.signature_of = array("H", self.indexed(self.signed(), self.signature))

    def indexed(self, keys: Iterable[Hashable], value_of: Callable[[int], int]) -> list[int]:
        """value_of(index of the entry) for all entries, called once for each distinct key."""
        known: dict[Hashable, int] = {}
        values = []
        for index, key in enumerate(keys):
            value = known.get(key)
            if value is None:
                value = known[key] = value_of(index)
            values.append(value)
        return values

    def states(self) -> Iterable[Hashable]:
        return zip(*(self.columns[name] for name in _STATE_FIELDS), strict=True)

    def sequences(self) -> list[Any]:
        """The sequence number that counts: of sends and receives their own."""
        collective = self.columns["collective_seq_id"]
        if None in collective:  # format 2.0
            collective = [entry.get("collective_seq_id", entry.get("seq_id")) for entry in self.entries]
        columns = zip(self.columns["is_p2p"], self.columns["p2p_seq_id"], collective, strict=True)
        return [own if point else shared for point, own, shared in columns]

    def signed(self) -> Iterable[bytes]:
        return (marshal.dumps(key, 2) for key in zip(*(self.columns[name] for name in _SIGNED), strict=True))

    def flag(self, index: int) -> int:
        state, retired, point, started, completed = (self.columns[name][index] for name in _STATE_FIELDS)
        flags = DONE if state == "completed" or retired is True or completed else SCHEDULED
        if state == "started" or started:
            flags |= STARTED
        return flags | P2P if point else flags

    def group(self, index: int) -> int:
        entry = self.entries[index]
        named = entry.get("process_group")
        pair = named if isinstance(named, tuple | list) and len(named) == 2 else (entry.get("pg_name", "0"), "")
        group = self.groups.setdefault((str(pair[0])[:200], str(pair[1])[:200]), len(self.groups))
        self.pg_ids.setdefault(group, entry.get("pg_id"))
        return group

    def signature(self, index: int) -> int:
        library, signature = _signature(self.entries[index])
        self.libraries.add(library)
        return self.signatures.setdefault(signature, len(self.signatures))

    def table(self, rank: int | None, where: str) -> RankTable:
        return RankTable(
            rank,
            where,
            library="/".join(sorted(filter(None, self.libraries))),
            version=str(self.dump.get("version", ""))[:20],
            groups=(*self.views(), *self.idle_groups()),
            signatures=tuple(self.signatures),
            calls=Columns(self.group_of, self.seqs, self.signature_of, self.flags, self.created).pack(),
            newest=tuple(self.newest()),
            threads=self.threads(),
            truncated=self.truncated,
            library_version=str(self.dump.get("comm_lib_version") or self.dump.get("nccl_version") or "")[:40],
        )

    def views(self) -> Iterator[GroupView]:
        """The groups with what their recorded collectives show."""
        checksums = [signature.checksum for signature in self.signatures]
        calls: list[list[tuple[int, int, int]]] = [[] for _ in self.groups]
        for group, seq, flags, signature in zip(self.group_of, self.seqs, self.flags, self.signature_of, strict=True):
            if not flags & P2P:
                calls[group].append((seq, flags, checksums[signature]))
        for (name, desc), group in self.groups.items():
            yield self.view(group, name, desc, calls[group])

    def view(self, group: int, name: str, desc: str, calls: Sequence[tuple[int, int, int]]) -> GroupView:
        config = _mapping(_mapping(self.dump.get("pg_config")).get(name))
        seqs = [seq for seq, _, _ in calls]
        status = self.status(group) if self.truncated or not seqs or "gloo" not in self.libraries else {}
        started = max((seq for seq, flags, _ in calls if flags), default=-1)
        completed = max((seq for seq, flags, _ in calls if flags & DONE), default=-1)
        checks = array("I", [check for _, _, check in calls])
        return GroupView(
            name,
            desc or str(config.get("desc", ""))[:200],
            _members(config.get("ranks")),
            max(max(seqs, default=-1), _whole(status.get("last_enqueued_collective"), -1)),
            max(started, _whole(status.get("last_started_collective"), -1)),
            max(completed, _whole(status.get("last_completed_collective"), -1)),
            min(seqs, default=-1),
            max(seqs, default=-1),
            zlib.crc32(checks.tobytes(), zlib.crc32(array("q", seqs).tobytes())),
        )

    def status(self, group: int) -> Mapping[str, Any]:
        """How far the process group says to be: gloo's counts sends and receives among the collectives."""
        return _mapping(_mapping(self.dump.get("pg_status")).get(str(self.pg_ids[group])))

    def idle_groups(self) -> Iterator[GroupView]:
        """Groups of pg_config without a recorded call: their members may matter all the same."""
        known = {name for name, _ in self.groups}
        for name, config in _mapping(self.dump.get("pg_config")).items():
            members = _members(_mapping(config).get("ranks"))
            if name and str(name) not in known and members:
                yield GroupView(str(name)[:200], str(_mapping(config).get("desc", ""))[:200], members, -1, -1, -1)

    def threads(self) -> dict[int, tuple[str, ...]]:
        """By group, the threads that issued on it, where there are several."""
        issuers: dict[int, set[str]] = {}
        columns = self.columns["thread_id"], self.columns["thread_name"]
        for group, identity, name in set(zip(self.group_of, *columns, strict=True)):
            if isinstance(identity, str | int):
                issuers.setdefault(group, set()).add(f"{name or ''} {identity}"[:80].strip())
        return {group: tuple(sorted(names)) for group, names in issuers.items() if len(names) > 1}

    def newest(self) -> Iterator[Call]:
        """The newest calls of each group, oldest first."""
        left = dict.fromkeys(self.groups.values(), KEPT_CALLS)
        kept: list[int] = []
        for index in range(len(self.entries) - 1, -1, -1):
            if left[self.group_of[index]] > 0:
                left[self.group_of[index]] -= 1
                kept.append(index)
            if len(kept) == KEPT_CALLS * len(left):
                break
        signatures = tuple(self.signatures)
        return (self.call(index, signatures[self.signature_of[index]]) for index in reversed(kept))

    def call(self, index: int, signature: Signature) -> Call:
        entry = self.entries[index]
        return Call(
            self.group_of[index],
            self.seqs[index],
            signature,
            self.flags[index],
            self.created[index],
            tuple(_frames(entry.get("frames"))),
            _peer(str(entry.get("profiling_name"))),
        )


def _columns(entries: Sequence[Entry]) -> dict[str, Sequence[Any]]:
    """The fields by column; None where an entry lacks one (older formats)."""
    try:
        rows = list(map(itemgetter(*_FIELDS), entries))
    except KeyError:
        rows = [tuple(map(entry.get, _FIELDS)) for entry in entries]
    columns: dict[str, Sequence[Any]] = dict(
        zip(_FIELDS, zip(*rows, strict=True) if rows else [()] * len(_FIELDS), strict=True)
    )
    columns["started"] = list(map(bool, columns["time_discovered_started_ns"]))
    columns["completed"] = list(map(bool, columns["time_discovered_completed_ns"]))
    return columns


def _plain_pair(named: Any) -> Hashable:
    return named if isinstance(named, tuple) else str(named)


def _whole_array(values: Sequence[Any], default: int) -> array[int]:
    try:
        return array("q", values)
    except (TypeError, OverflowError):
        return array("q", [_whole(value, default) for value in values])


def _signature(entry: Entry) -> tuple[str, Signature]:
    name, sizes_in, sizes_out = (entry.get(key) for key in _SIGNED[:3])
    dtypes = entry.get("input_dtypes") or entry.get("output_dtypes")
    library, _, op = str(name).rpartition(":")
    op = op.split(" ")[0]
    numel_in, numel_out = _numel(sizes_in), _numel(sizes_out)
    if may_be_uneven(op):
        numel_in = numel_out = -1
    elif op in _SIZE_IN:
        numel_out = -1
    sizes = f"{sizes_in} → {sizes_out}"[:200]
    kinds = sorted({str(one) for one in dtypes}) if isinstance(dtypes, list) else []
    return library, Signature(op[:80], numel_in, numel_out, ",".join(kinds)[:80], sizes)


def _numel(sizes: Any) -> int:
    """Elements of all tensors; -1 where the sizes are not lists of numbers."""
    try:
        return sum(math.prod(one) for one in sizes)
    except TypeError:
        return -1


def _members(ranks: Any) -> str:
    """Folded members from `"[0, 1, 2]"` (a string in the dump) or a list."""
    if isinstance(ranks, list):
        ranks = ",".join(str(one) for one in ranks if isinstance(one, int))
    return _folded(ranks[:1_000_000]) if isinstance(ranks, str) else ""


@lru_cache(maxsize=4096)
def _folded(text: str) -> str:
    return fold_ranks(sorted({int(one) for one in re.findall(r"\d+", text)}))


def _frames(frames: Any) -> Iterable[Frame]:
    for frame in frames[:KEPT_FRAMES] if isinstance(frames, list) else ():
        if isinstance(frame, dict):
            name, file = str(frame.get("name", "")), str(frame.get("filename", ""))
            yield Frame(name[:200], file[-300:], _whole(frame.get("line"), 0))


def _peer(name: str) -> tuple[int, int] | None:
    match = _PEER.search(name)
    if match is None:
        return None
    own, other = int(match[2]), int(match[4])
    return (own, other) if match[3] == "->" else (other, own)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and -(1 << 63) <= value < 1 << 63 else default
