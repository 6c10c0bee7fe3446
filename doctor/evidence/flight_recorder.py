"""PyTorch's flight recorder: dumps of format 2.0 to 2.10, pickle or JSON, of any library → RankTable.

Reads what is there: entries without `retired` (old formats), without members (`pg_config` of gloo), truncated files.
On gloo `state` never leaves `scheduled`: `retired` and `pg_status` tell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from doctor.evidence.rank_table import RankTable
from doctor.evidence.source import Parser, Source, UnreadableError, rank_in_name
from doctor.evidence.tabulate import tabulate
from launcher.common.unpickle import RefusedPickleError, loads, salvage

REDUCED = b'{"dlaunch_rank_table"'
MAX_ENTRIES = 1_000_000


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
        if "pg_status" not in document:
            raise UnreadableError("a flight recorder dump without entries")
        entries = []
    if len(entries) > MAX_ENTRIES:
        raise UnreadableError(f"{len(entries):,} entries are more than a recorder holds")
    return {**document, "entries": [entry for entry in entries if isinstance(entry, dict)]}


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


def sniff_view(sample: bytes, name: str) -> float:
    return 1.0 if b'"dlaunch_process_view"' in sample[:200] else 0.0


def parse_view(source: Source) -> Iterator[ProcessView]:
    """The file that the recorder's hook writes beside a dump."""
    record = json.loads(source.read(1 << 24))
    groups = {name: (one["desc"], tuple(one["ranks"])) for name, one in record["groups"].items()}
    yield ProcessView(record["rank"], source.name, record["host"], record["time"], groups, record.get("mesh", {}))


def sniff_reduced(sample: bytes, name: str) -> float:
    return 1.0 if sample.startswith(REDUCED) else 0.0


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
    Parser("flight recorder", sniff, parse, magic=b"\x80"),
    Parser("process view", sniff_view, parse_view),
    Parser("reduced flight recorder", sniff_reduced, parse_reduced, magic=REDUCED),
)
