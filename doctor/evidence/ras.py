"""NCCL's RAS: text of 2.24 and later, per-operation counts (2.26.2), JSON (2.28.7), monitor events (2.29)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from doctor.evidence.source import Parser, Source


@dataclass(frozen=True)
class RasPeer:
    """A rank or process that RAS lists."""

    rank: int | None
    host: str
    pid: int
    gpu: int | None


@dataclass(frozen=True)
class RasCount:
    """So many ranks of a communicator have launched up to operation `count`, or have `status`; those listed, if any."""

    ranks: int
    count: int | None = None
    status: str | None = None
    listed: Sequence[RasPeer] = ()


@dataclass(frozen=True)
class RasComm:
    """A communicator that RAS complains about. `op` is empty where counts are over all operations."""

    identity: str
    problem: str
    op: str = ""
    counts: Sequence[RasCount] = ()
    missing: Sequence[RasPeer] = ()
    missing_ranks: Sequence[int] = ()
    size: int | None = None


@dataclass(frozen=True)
class RasGroup:
    """A row of the table of communicators."""

    comms: int
    ranks_per_comm: str
    ranks: int
    status: str
    errors: str


@dataclass(frozen=True)
class RasReport:
    """One answer of RAS. `dead` and `missing` are processes; `timeouts` counts those while it gathered."""

    where: str
    version: str | None = None
    nodes: int | None = None
    gpus: int | None = None
    groups: Sequence[RasGroup] = ()
    comms: Sequence[RasComm] = ()
    dead: Sequence[RasPeer] = ()
    missing: Sequence[RasPeer] = ()
    timeouts: int = 0
    events: Sequence[tuple[str, RasPeer]] = ()


_GROUP_ROW = re.compile(
    r"^\s+\d+\s+(?P<comms>\d+)\s+\S+\s+\S+\s+(?P<per>\S+)\s+(?P<ranks>\d+)\s+(?P<status>[A-Z]+)\s+(?P<errors>[A-Z]+)\s*$"
)
_JOB_ROW = re.compile(r"^\s+(?P<nodes>\d+)\s+\S+\s+\S+\s+\d+\s+(?P<gpus>\d+)\s*$")
_COMM = re.compile(r"^#\S+ \((?P<id>[0-9a-f]+)\) (?P<problem>[A-Z]+)")
_COUNT = re.compile(
    r"^\s+(?P<ranks>\d+) ranks? (?:has|have) (?:launched up to operation (?P<count>\d+)|status (?P<status>\w+))"
)
_RANK = re.compile(
    r"^\s+Rank (?P<rank>\d+) -- (?:GPU (?P<gpu>\d+) )?managed by process (?P<pid>\d+) on node (?P<host>\S+)"
)
_PROCESS = re.compile(r"Process (?P<pid>\d+) on node (?P<host>\S+?)(?: managing GPUs? (?P<gpu>\d+))?(?:[\s,].*)?$")
_MONITOR = re.compile(r"^\s*\[[\d :-]+\] (?P<event>[A-Z_]+): (?P<rest>Process .*)")
_OPERATION = re.compile(r"ranks have different (?P<op>\w+) operation counts")
_MISSING = re.compile(r"missing ranks?:? (?P<ranks>\d[\d, -]*)")


def is_ras(sample: bytes) -> bool:
    marks = (
        b"Communicators... (",
        b"RAS Monitor Mode",
        b"ranks have launched up to operation",
        b"Communicator ranks have different",
    )
    return (
        any(mark in sample for mark in marks)
        or re.search(
            rb'"(?:missing_ranks|ras|collective_counts)"\s*:|^\s*DEAD\s*$|^#\d+-\d+ \([0-9a-f]+\) [A-Z]+',
            sample,
            re.MULTILINE,
        )
        is not None
    )


def parse_ras(text: str, where: str) -> RasReport:
    """Text or JSON of one query. Raises ValueError for JSON that is neither."""
    stripped = text.lstrip()
    if stripped.startswith("{"):
        return _from_json(json.loads(stripped), where)
    return _TextReader(where).read(text)


class _TextReader:
    def __init__(self, where: str) -> None:
        self.where = where
        self.groups: list[RasGroup] = []
        self.comms: list[dict[str, Any]] = []
        self.section = ""
        self.values: dict[str, Any] = {"dead": [], "missing": [], "events": []}

    def read(self, text: str) -> RasReport:
        for line in text.splitlines():
            self._line(line)
        comms = tuple(
            RasComm(**{**comm, "counts": tuple(RasCount(**one) for one in comm["counts"])}) for comm in self.comms
        )
        return RasReport(self.where, groups=tuple(self.groups), comms=comms, **self.values)

    def _line(self, line: str) -> None:
        if version := re.match(r"NCCL version (\S+)", line):
            self.values["version"] = version[1]
        elif job := _JOB_ROW.match(line):
            self.values.update(nodes=int(job["nodes"]), gpus=int(job["gpus"]))
        elif row := _GROUP_ROW.match(line):
            self.groups.append(RasGroup(int(row["comms"]), row["per"], int(row["ranks"]), row["status"], row["errors"]))
        elif comm := _COMM.match(line):
            self.section = "comm"
            self.comms.append({"identity": comm["id"], "problem": comm["problem"], "counts": []})
        elif line.strip() in ("DEAD", "INCOMPLETE", "TIMEOUT"):
            self.section = line.strip()
        elif event := _MONITOR.match(line):
            if process := _PROCESS.search(event["rest"]):
                self.values["events"].append((event["event"], _peer(process)))
        elif timeouts := re.search(r"Encountered (\d+) communication timeouts?", line):
            self.values["timeouts"] = int(timeouts[1])
        elif (process := _PROCESS.search(line)) and self.section in ("DEAD", "INCOMPLETE"):
            self.values["dead" if self.section == "DEAD" else "missing"].append(_peer(process))
        elif self.comms and self.section == "comm":
            self._comm_line(line, self.comms[-1])

    def _comm_line(self, line: str, comm: dict[str, Any]) -> None:
        if operation := _OPERATION.search(line):
            comm["op"] = "" if operation["op"] == "collective" else operation["op"]
        elif count := _COUNT.match(line):
            number = int(count["count"]) if count["count"] else None
            comm["counts"].append(
                {"ranks": int(count["ranks"]), "count": number, "status": count["status"], "listed": ()}
            )
        elif (rank := _RANK.match(line)) and comm["counts"]:
            comm["counts"][-1]["listed"] += (_peer(rank, int(rank["rank"])),)
        elif rank:
            comm["missing"] = (*comm.get("missing", ()), _peer(rank, int(rank["rank"])))
        elif missing := _MISSING.search(line):
            comm["missing_ranks"] = tuple(int(one) for one in re.findall(r"\d+", missing["ranks"]))


def _peer(match: re.Match[str], rank: int | None = None) -> RasPeer:
    return RasPeer(rank, match["host"], int(match["pid"]), int(match["gpu"]) if match["gpu"] else None)


def _from_json(document: Mapping[str, Any], where: str) -> RasReport:
    comms = []
    for comm in document.get("communicators", ()):
        missing = tuple(_json_peer(rank) for rank in comm.get("missing_ranks", ()))
        counts = _json_counts(comm.get("ranks", ()))
        problem = "INCOMPLETE" if missing else "MISMATCH" if counts else "OK"
        comms.append(
            RasComm(
                str(comm.get("hash", "")),
                problem,
                counts[0][0] if counts else "",
                tuple(counts[0][1]) if counts else (),
                missing,
                tuple(peer.rank for peer in missing if peer.rank is not None),
                comm.get("size"),
            )
        )
    events: list[tuple[str, RasPeer]] = []
    if document.get("event"):
        events.append((str(document["event"]), _json_peer(document.get("peer", {}))))
    dead = [
        _json_peer(rank)
        for comm in document.get("communicators", ())
        for rank in comm.get("missing_ranks", ())
        if rank.get("status", {}).get("considered_dead")
    ]
    ras = document.get("ras", {})
    return RasReport(
        where,
        document.get("nccl_version"),
        comms=tuple(comms),
        dead=tuple(dead),
        timeouts=int(ras.get("timeouts_count", 0)),
        events=tuple(events),
    )


def _json_peer(record: Mapping[str, Any]) -> RasPeer:
    devices = record.get("cuda_devs") or [record.get("cuda_dev")]
    return RasPeer(record.get("rank"), str(record.get("host", "?")), int(record.get("pid", 0)), devices[0])


def _json_counts(ranks: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[RasCount]]]:
    """(operation, counts) of the operations whose launch counts differ between ranks."""
    found = []
    operations = sorted({op for rank in ranks for op in rank.get("collective_counts", {})})
    for op in operations:
        by_count: dict[int, list[RasPeer]] = {}
        for rank in ranks:
            by_count.setdefault(int(rank["collective_counts"].get(op, 0)), []).append(_json_peer(rank))
        if len(by_count) > 1:
            counts = [RasCount(len(peers), count, None, tuple(peers)) for count, peers in sorted(by_count.items())]
            found.append((op, counts))
    return found


def sniff(sample: bytes, name: str) -> float:
    return 0.9 if is_ras(sample) else 0.0


def parse(source: Source) -> Iterator[object]:
    yield parse_ras(source.text(), source.name)


PARSERS = (Parser("ncclras", sniff, parse),)
