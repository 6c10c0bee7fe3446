"""NCCL's RAS: text of 2.24 and later, per-operation counts (2.26.2), JSON (2.28.7), monitor events (2.29)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """So many ranks of a communicator have launched up to operation `count`, or have `status`, or report that error as
    their `status`; those listed, if any."""

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


@dataclass(frozen=True)
class RasReport:
    """One answer of RAS. `groups`: what is wrong (or OK) with each group of its communicators; `dead` and `missing` are
    processes."""

    where: str
    version: str | None = None
    groups: Sequence[str] = ()
    comms: Sequence[RasComm] = ()
    dead: Sequence[RasPeer] = ()
    missing: Sequence[RasPeer] = ()
    events: Sequence[tuple[str, RasPeer]] = ()

    @property
    def agrees(self) -> bool:
        """Whether it sees communicators, and nothing wrong with any."""
        return bool(self.groups) and all(errors == "OK" for errors in self.groups)


_GROUP_ROW = re.compile(
    r"^\s+(?P<group>\d+)\s+\d+\s+\S+\s+\S+\s+(?P<per>\S+)\s+\d+\s+[A-Z]+\s+(?P<errors>[A-Z]+(?:,[A-Z]+)*)\s*$"
)
_COMM = re.compile(r"^#(?P<group>\d+)\S* \((?P<id>[0-9a-f]+)\) (?P<problem>[A-Z]+)")
_COUNT = re.compile(  # a rank that is alone is named in the same line
    r"^\s+(?:(?P<ranks>\d+) ranks?|Rank \d+) (?:has|have) "
    r"(?:launched up to operation (?P<count>\d+)|(?P<none>not launched any)|status (?P<status>\w+))"
)
_RANK = re.compile(
    r"^\s+Rank (?P<rank>\d+) (?:(?:has|reported) .*)?-- (?:GPU (?P<gpu>\d+) (?:\(NVML \d+\) )?)?"
    r"managed by process (?P<pid>\d+) on node (?P<host>\S+)"
)
_PROCESS = re.compile(r"Process (?P<pid>\d+) on node (?P<host>\S+?)(?: managing GPUs? (?P<gpu>\d+))?(?:[\s,].*)?$")
_MONITOR = re.compile(r"^\s*\[[\d :-]+\] (?P<event>[A-Z_]+): (?P<rest>Process .*)")
_DIFFERENT = re.compile(r"ranks have different (?:(?P<op>\w+) operation counts|status)")
_MISSING = re.compile(r"missing ranks?:? (?P<ranks>\d[\d, -]*)")
_REPORTED = re.compile(r"^\s+(?:(?P<ranks>\d+) ranks|Rank \d+) reported (?P<error>[\w ]+?)(?: -- .*)?$")
_ERRORS = ("init_state", "async_error")
# What the numbers of JSON are called in text; success and in progress are none.
_RESULTS = {
    1: "Unhandled CUDA error",
    2: "System error",
    3: "Internal error",
    4: "Invalid argument",
    5: "Invalid usage",
    6: "Remote process error",
}


def is_ras(sample: bytes) -> bool:
    marks = (
        b"Communicators... (",
        b"RAS Monitor Mode",
        b"launched up to operation",
        b"Communicator ranks have different",
        b"Missing communicator data from",
    )
    return (
        any(mark in sample for mark in marks)
        or re.search(
            rb'"(?:missing_ranks|ras|collective_counts)"\s*:|"event"\s*:\s*"PEER_'
            rb"|^\s*DEAD\s*$|^#\d+-\d+ \([0-9a-f]+\) [A-Z]+",
            sample,
            re.MULTILINE,
        )
        is not None
    )


def parse_ras(text: str, where: str) -> RasReport:
    """Text or JSON of one query, or the events of a monitor. Raises ValueError for JSON that is neither."""
    stripped = text.lstrip()
    if not stripped.startswith("{"):
        return _TextReader(where).read(text)
    reports = [_from_json(document, where) for document in _documents(stripped)]
    whole = next((one for one in reports if one.groups or one.comms), reports[0])
    return replace(whole, events=tuple(event for one in reports for event in one.events))


def _documents(text: str) -> Iterator[Mapping[str, Any]]:
    """JSON objects, one behind the other."""
    decoder = json.JSONDecoder()
    while text.startswith("{"):
        document, end = decoder.raw_decode(text)
        yield document
        text = text[end:].lstrip()
    if text:
        raise ValueError("text behind the JSON of RAS")


class _TextReader:
    def __init__(self, where: str) -> None:
        self.where = where
        self.groups: dict[str, str] = {}
        self.comms: list[dict[str, Any]] = []
        self.section = ""
        self.values: dict[str, Any] = {"dead": [], "missing": [], "events": []}

    def read(self, text: str) -> RasReport:
        for line in text.splitlines():
            self._line(line)
        comms = tuple(
            RasComm(**{**comm, "counts": tuple(RasCount(**one) for one in comm["counts"])}) for comm in self.comms
        )
        return RasReport(self.where, groups=tuple(self.groups.values()), comms=comms, **self.values)

    def _line(self, line: str) -> None:
        if version := re.match(r"NCCL version (\S+)", line):
            self.values["version"] = version[1]
        elif row := _GROUP_ROW.match(line):
            self._group(row)
        elif comm := _COMM.match(line):
            self._comm(comm)
        elif line.strip() in ("DEAD", "INCOMPLETE", "TIMEOUT"):
            self.section = line.strip()
        elif event := _MONITOR.match(line):
            if process := _PROCESS.search(event["rest"]):
                self.values["events"].append((event["event"], _peer(process)))
        elif (process := _PROCESS.search(line)) and self.section in ("DEAD", "INCOMPLETE"):
            self.values["dead" if self.section == "DEAD" else "missing"].append(_peer(process))
        elif self.comms and self.section == "comm":
            self._comm_line(line, self.comms[-1])

    def _group(self, row: re.Match[str]) -> None:
        if row["per"] != "0":  # memory that NCCL has not filled (2.27.3)
            self.groups[row["group"]] = row["errors"]

    def _comm(self, comm: re.Match[str]) -> None:
        self.section = "comm" if comm["group"] in self.groups or not self.groups else "empty"
        if self.section == "comm":
            self.comms.append({"identity": comm["id"], "problem": comm["problem"], "counts": []})

    def _comm_line(self, line: str, comm: dict[str, Any]) -> None:
        rank = _RANK.match(line)
        if different := _DIFFERENT.search(line):
            if comm["counts"]:
                comm = {"identity": comm["identity"], "problem": comm["problem"], "counts": []}
                self.comms.append(comm)
            op = different["op"] or ""
            comm["op"] = "" if op == "collective" else op
        elif count := _COUNT.match(line):
            number = int(count["count"]) if count["count"] else 0 if count["none"] else None
            listed = (_peer(rank, int(rank["rank"])),) if rank else ()
            comm["counts"].append(
                {"ranks": int(count["ranks"] or 1), "count": number, "status": count["status"], "listed": listed}
            )
        elif reported := _REPORTED.match(line):
            listed = (_peer(rank, int(rank["rank"])),) if rank else ()
            comm["counts"].append({"ranks": int(reported["ranks"] or 1), "status": reported["error"], "listed": listed})
        elif rank and comm["counts"]:
            comm["counts"][-1]["listed"] += (_peer(rank, int(rank["rank"])),)
        elif rank and comm["problem"] == "INCOMPLETE":
            comm["missing"] = (*comm.get("missing", ()), _peer(rank, int(rank["rank"])))
        elif missing := _MISSING.search(line):
            comm["missing_ranks"] = tuple(int(one) for one in re.findall(r"\d+", missing["ranks"]))


def _peer(match: re.Match[str], rank: int | None = None) -> RasPeer:
    return RasPeer(rank, match["host"], int(match["pid"]), int(match["gpu"]) if match["gpu"] else None)


def _from_json(document: Mapping[str, Any], where: str) -> RasReport:
    communicators = document.get("communicators", ())
    comms = [one for comm in communicators for one in _json_comms(comm)]
    events: list[tuple[str, RasPeer]] = []
    if document.get("event") and document.get("peer", {}).get("host"):
        events.append((str(document["event"]), _json_peer(document["peer"])))
    dead = [
        _json_peer(rank)
        for comm in communicators
        for rank in comm.get("missing_ranks", ())
        if rank.get("status", {}).get("considered_dead")
    ]
    return RasReport(
        where,
        document.get("nccl_version"),
        groups=tuple(",".join(sorted({one.problem for one in _json_comms(comm)})) for comm in communicators),
        comms=tuple(comms),
        dead=tuple(dead),
        events=tuple(events),
    )


def _json_comms(comm: Mapping[str, Any]) -> list[RasComm]:
    """What is wrong with a communicator, or that nothing is."""
    identity, ranks = str(comm.get("hash", "")), comm.get("ranks", ())
    absent = comm.get("missing_ranks", ())
    missing = tuple(_json_peer(rank) for rank in absent if rank.get("status", {}).get("unresponsive", True))
    found: list[RasComm] = []
    if missing:
        found.append(RasComm(identity, "INCOMPLETE", missing=missing))
    statuses = _json_statuses(ranks, [rank for rank in absent if not rank.get("status", {}).get("unresponsive", True)])
    if len(statuses) > 1:
        found.append(RasComm(identity, "MISMATCH", counts=tuple(statuses)))
    found += [RasComm(identity, "MISMATCH", op, tuple(counts)) for op, counts in _json_counts(ranks)]
    if errors := _json_errors(ranks):
        found.append(RasComm(identity, "ERROR", counts=errors))
    return found or [RasComm(identity, "OK")]


def _json_errors(ranks: Sequence[Mapping[str, Any]]) -> list[RasCount]:
    """Which ranks report which error, of their initialisation or later."""
    by_error: dict[str, list[RasPeer]] = {}
    for rank in ranks:
        status = rank.get("status", {})
        told = next((error for name in _ERRORS if (error := _RESULTS.get(status.get(name)))), None)
        if told:
            by_error.setdefault(told, []).append(_json_peer(rank))
    return [RasCount(len(peers), None, error, tuple(peers)) for error, peers in by_error.items()]


def _json_statuses(ranks: Sequence[Mapping[str, Any]], left: Sequence[Mapping[str, Any]]) -> list[RasCount]:
    """How many ranks have each status; those that answer but are not in the communicator have left it or never came."""
    by_status: dict[str, list[RasPeer]] = {}
    for rank in ranks:
        status = rank.get("status", {})
        ends = status.get("finalize_called") or status.get("destroy_flag")
        runs = "INIT" if status.get("init_state") else "RUNNING"
        name = "ABORT" if status.get("abort_flag") else "FINALIZE" if ends else runs
        by_status.setdefault(name, []).append(_json_peer(rank))
    if left:
        by_status["NOCOMM"] = [_json_peer(rank) for rank in left]
    return [RasCount(len(peers), None, name, tuple(peers)) for name, peers in by_status.items()]


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
            by_count.setdefault(int(rank.get("collective_counts", {}).get(op, 0)), []).append(_json_peer(rank))
        if len(by_count) > 1:
            counts = [RasCount(len(peers), count, None, tuple(peers)) for count, peers in sorted(by_count.items())]
            found.append((op, counts))
    return found


def sniff(sample: bytes, name: str) -> float:
    return 0.9 if is_ras(sample) else 0.0


def parse(source: Source) -> Iterator[object]:
    yield parse_ras(source.text(), source.name)


PARSERS = (Parser("ncclras", sniff, parse),)
