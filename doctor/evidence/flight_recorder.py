"""PyTorch's flight recorder: dumps of format 2.0 to 2.10, pickle or JSON, of any library → RankTable.

Reads what is there: entries without `retired` (old formats), without members (`pg_config` of gloo), truncated files.
On gloo `state` never leaves `scheduled`: `retired` and `pg_status` tell.
"""

from __future__ import annotations

import json
import marshal
import math
import re
import zlib
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
)
from doctor.evidence.source import Parser, Source, UnreadableError, rank_in_name
from launcher.common.unpickle import RefusedPickleError, loads, salvage

Entry = Mapping[str, Any]
MAX_ENTRIES = 1_000_000
# Operations whose members may give different sizes, or where only the root gives them.
UNEVEN = frozenset({"all_to_all", "all_to_allv", "gather", "scatter", "send", "recv", "coalesced", "barrier"})
_SIZE_IN = frozenset({"all_reduce", "broadcast", "reduce", "reduce_scatter", "_reduce_scatter_base"})
_SIGNED = ("profiling_name", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
_PEER = re.compile(r"(send|recv)\s+(\d+)\s*(->|<-)\s*-?(\d+)")


@dataclass(frozen=True)
class ProcessView:
    """What a process itself knows of its groups, written beside a dump that does not tell (gloo)."""

    rank: int
    where: str
    host: str
    time: float  # seconds since the epoch
    groups: Mapping[str, tuple[str, tuple[int, ...]]]  # name -> (description, members)
    mesh: Mapping[str, int] = field(default_factory=dict)


def sniff(sample: bytes, name: str) -> float:
    """1.0 for a dump: a pickle or a JSON document with a recorder's keys."""
    if sample[:1] == b"\x80" or sample[:2] in (b"}q", b"}("):
        return 1.0 if re.search(rb"pg_config|pg_status|record_id|profiling_name|nccl_version", sample) else 0.0
    head = sample.lstrip()[:1]
    if head in (b"{", b"[") and re.search(rb'"(?:profiling_name|pg_config|pg_status)"', sample):
        return 1.0
    return 0.0


def parse(source: Source) -> Iterator[RankTable]:
    """The table of one dump; raises UnreadableError when it is not one or would run code."""
    data = source.read()
    document, truncated = _unpickled(data, source) if data[:1] in (b"\x80", b"}") else (_from_json(data), False)
    yield tabulate(normalised(document), rank_in_name(source.name), source.name, truncated)


def normalised(document: Any) -> Mapping[str, Any]:
    """A dump as the dict that torch writes, from what people keep of it: a list of entries, or one entry."""
    if isinstance(document, list):
        document = {"entries": document}
    if not isinstance(document, dict):
        raise UnreadableError("not a flight recorder dump")
    if "entries" not in document and isinstance(document.get("entry"), dict):
        document = {**document, "entries": [document["entry"]]}
    entries = document.get("entries")
    if not isinstance(entries, list):
        entries = []
    if len(entries) > MAX_ENTRIES:
        raise UnreadableError(f"{len(entries):,} entries are more than a recorder holds")
    return {**document, "entries": [entry for entry in entries if isinstance(entry, dict)]}


def tabulate(dump: Mapping[str, Any], rank: int | None, where: str, truncated: bool = False) -> RankTable:
    """Reduce one dump."""
    return _Builder(dump).table(rank, where, truncated)


def _unpickled(data: bytes, source: Source) -> tuple[Any, bool]:
    try:
        return loads(data), False
    except RefusedPickleError as error:
        if "damaged" not in str(error):
            raise
    document = salvage(data)
    source.note("the dump is cut off: read up to where it ends", blinding=False)
    return document, True


def _from_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except RecursionError as error:
        raise UnreadableError("nested too deeply: refused") from error


class _Builder:
    """The columns of a RankTable, each made in one pass over the entries."""

    def __init__(self, dump: Mapping[str, Any]) -> None:
        self.dump = dump
        self.entries: list[Entry] = dump["entries"]
        self.groups: dict[tuple[str, str], int] = {}
        self.pg_ids: dict[int, Any] = {}
        self.signatures: dict[Signature, int] = {}
        self.libraries: set[str] = set()
        self.seqs = array("q", [_sequence(entry) for entry in self.entries])
        self.flags = array("B", [_flags(entry) for entry in self.entries])
        self.created = array("q", [_whole(entry.get("time_created_ns"), 0) for entry in self.entries])
        self.group_of = array("H", self.each(_group_key, self.group))
        self.signature_of = array("H", self.each(_signature_key, self.signature))
        self.checksums = [signature.checksum for signature in self.signatures]

    def each(self, key_of: Callable[[Entry], Hashable], index_of: Callable[[Entry], int]) -> list[int]:
        """index_of(entry) for all entries, called once for each distinct key."""
        known: dict[Hashable, int] = {}
        indexes = []
        for entry in self.entries:
            key = key_of(entry)
            index = known.get(key)
            if index is None:
                index = known[key] = index_of(entry)
            indexes.append(index)
        return indexes

    def group(self, entry: Entry) -> int:
        named = entry.get("process_group")
        pair = named if isinstance(named, tuple | list) and len(named) == 2 else (entry.get("pg_name", "0"), "")
        index = self.groups.setdefault((str(pair[0])[:200], str(pair[1])[:200]), len(self.groups))
        self.pg_ids.setdefault(index, entry.get("pg_id"))
        return index

    def signature(self, entry: Entry) -> int:
        library, signature = _signature(entry)
        self.libraries.add(library)
        return self.signatures.setdefault(signature, len(self.signatures))

    def table(self, rank: int | None, where: str, truncated: bool) -> RankTable:
        progress = self.progress()
        views = tuple(self.view(index, *named, *progress[index]) for named, index in self.groups.items())
        return RankTable(
            rank,
            where,
            library="/".join(sorted(filter(None, self.libraries))),
            version=str(self.dump.get("version", ""))[:20],
            groups=(*views, *self.idle_groups()),
            signatures=tuple(self.signatures),
            group_of=self.group_of,
            seq_of=self.seqs,
            signature_of=self.signature_of,
            flags_of=self.flags,
            created_of=self.created,
            newest=tuple(self.newest()),
            threads=self.threads(),
            truncated=truncated,
            library_version=str(self.dump.get("comm_lib_version") or self.dump.get("nccl_version") or "")[:40],
        )

    def view(self, index: int, name: str, desc: str, enqueued: int, started: int, completed: int) -> GroupView:
        status = _mapping(_mapping(self.dump.get("pg_status")).get(str(self.pg_ids[index])))
        config = _mapping(_mapping(self.dump.get("pg_config")).get(name))
        return GroupView(
            name,
            desc or str(config.get("desc", ""))[:200],
            _members(config.get("ranks")),
            max(enqueued, _whole(status.get("last_enqueued_collective"), -1)),
            max(started, _whole(status.get("last_started_collective"), -1)),
            max(completed, _whole(status.get("last_completed_collective"), -1)),
            *self.window(index),
        )

    def window(self, group: int) -> tuple[int, int, int]:
        """(first, last, digest) of the collectives of a group that were recorded."""
        seqs, checks = array("q"), array("I")
        for owner, seq, signature, flags in zip(self.group_of, self.seqs, self.signature_of, self.flags, strict=True):
            if owner == group and not flags & P2P:
                seqs.append(seq)
                checks.append(self.checksums[signature])
        digest = zlib.crc32(checks.tobytes(), zlib.crc32(seqs.tobytes()))
        return min(seqs, default=-1), max(seqs, default=-1), digest

    def progress(self) -> list[tuple[int, int, int]]:
        """By group: newest sequence number of a collective enqueued, started, completed, as the entries show."""
        newest = [[-1, -1, -1] for _ in self.groups]
        for group, seq, flags in zip(self.group_of, self.seqs, self.flags, strict=True):
            if not flags & P2P:
                reached = newest[group]
                reached[0] = max(reached[0], seq)
                if flags:
                    reached[1] = max(reached[1], seq)
                if flags & DONE:
                    reached[2] = max(reached[2], seq)
        return [(enqueued, started, completed) for enqueued, started, completed in newest]

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
        for pair in {(group, entry.get("thread_id"), entry.get("thread_name")) for group, entry in self.issued()}:
            issuers.setdefault(pair[0], set()).add(f"{pair[2] or ''} {pair[1]}"[:80].strip())
        return {group: tuple(sorted(names)) for group, names in issuers.items() if len(names) > 1}

    def issued(self) -> Iterator[tuple[int, Entry]]:
        for group, entry in zip(self.group_of, self.entries, strict=True):
            if isinstance(entry.get("thread_id"), str | int) and isinstance(entry.get("thread_name"), str | None):
                yield group, entry

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
        started = entry.get("time_discovered_started_ns")
        return Call(
            self.group_of[index],
            self.seqs[index],
            signature,
            self.flags[index],
            self.created[index],
            started if isinstance(started, int) else None,
            tuple(_frames(entry.get("frames"))),
            str(entry.get("thread_name") or "")[:80],
            _peer(str(entry.get("profiling_name"))),
        )


def _sequence(entry: Entry) -> int:
    if entry.get("is_p2p"):
        return _whole(entry.get("p2p_seq_id"), -1)
    return _whole(entry.get("collective_seq_id", entry.get("seq_id")), -1)


def _group_key(entry: Entry) -> Hashable:
    named = entry.get("process_group")
    return (*map(str, named),) if isinstance(named, tuple | list) else str(entry.get("pg_name"))


def _signature_key(entry: Entry) -> bytes:
    return marshal.dumps([entry.get(key) for key in _SIGNED], 2)


def _flags(entry: Entry) -> int:
    state = entry.get("state")
    flags = SCHEDULED
    if state == "completed" or entry.get("retired") is True or entry.get("time_discovered_completed_ns"):
        flags = DONE
    if state == "started" or entry.get("time_discovered_started_ns"):
        flags |= STARTED
    return flags | P2P if entry.get("is_p2p") else flags


def _signature(entry: Entry) -> tuple[str, Signature]:
    name, sizes_in, sizes_out = (entry.get(key) for key in _SIGNED[:3])
    dtypes = entry.get("input_dtypes") or entry.get("output_dtypes")
    library, _, op = str(name).rpartition(":")
    op = op.split(" ")[0]
    numel_in, numel_out = _numel(sizes_in), _numel(sizes_out)
    if op in UNEVEN:
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


def _members(ranks: Any) -> tuple[int, ...]:
    """Members from `"[0, 1, 2]"` (a string in the dump) or a list."""
    if isinstance(ranks, str):
        return tuple(sorted(int(one) for one in re.findall(r"\d+", ranks[:1_000_000])))
    if isinstance(ranks, list):
        return tuple(sorted(one for one in ranks if isinstance(one, int)))
    return ()


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


def sniff_view(sample: bytes, name: str) -> float:
    return 1.0 if b'"dlaunch_process_view"' in sample[:200] else 0.0


def parse_view(source: Source) -> Iterator[ProcessView]:
    """The file that the recorder's hook writes beside a dump."""
    record = json.loads(source.read(1 << 24))
    groups = {name: (one["desc"], tuple(one["ranks"])) for name, one in record["groups"].items()}
    yield ProcessView(record["rank"], source.name, record["host"], record["time"], groups, record.get("mesh", {}))


def sniff_reduced(sample: bytes, name: str) -> float:
    return 1.0 if sample.startswith(b'{"dlaunch_rank_table"') else 0.0


def parse_reduced(source: Source) -> Iterator[RankTable]:
    """Tables that a node reduced: one JSON document a line."""
    with source.path.open("rb") as lines:
        for line in lines:
            yield _reduced(line)


def _reduced(line: bytes) -> RankTable:
    try:
        return RankTable.from_json(json.loads(line)["dlaunch_rank_table"])
    except (KeyError, TypeError, OverflowError) as error:
        raise UnreadableError(f"not a reduced dump: {error}") from error


PARSERS = (
    Parser("flight recorder", sniff, parse),
    Parser("process view", sniff_view, parse_view),
    Parser("reduced flight recorder", sniff_reduced, parse_reduced),
)
