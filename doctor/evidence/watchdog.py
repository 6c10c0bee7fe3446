"""torch's watchdog lines of all versions → what each rank waited for: enough for a desync table without a recorder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from doctor.evidence.log_lines import LogLine


@dataclass(frozen=True)
class WorkTimeout:
    """A rank gave up waiting for collective `seq` (or NO_NUMBER) of a group. None: not told."""

    rank: int | None
    group: str
    seq: int
    op: str
    numel_in: int | None
    numel_out: int | None
    timeout_ms: int | None
    ran_ms: int | None
    where: str
    text: str
    time: float | None = None
    host: str | None = None

    @property
    def call(self) -> str:
        """`ALLREDUCE number 41`, or the operation alone."""
        return self.op if self.seq == NO_NUMBER else f"{self.op} number {self.seq}"


@dataclass(frozen=True)
class GroupProgress:
    """How far a rank had come in a group: the last enqueued and completed number, as the watchdog printed it."""

    rank: int | None
    group: str
    enqueued: int
    completed: int
    failed_at: int | None
    where: str
    text: str
    time: float | None = None
    host: str | None = None


@dataclass(frozen=True)
class DesyncLine:
    """A line of torch's own desync report: `ranks` finished `finished` and did not join (or finish) `missing`."""

    ranks: Sequence[int]
    finished: int | None
    missing: int | None
    where: str
    text: str


@dataclass(frozen=True)
class DesyncState:
    """A line of that report's snapshot: these ranks had started or finished number `seq` with operation `op`."""

    seq: int
    state: str
    ranks: Sequence[int]
    op: str
    where: str
    text: str


NO_NUMBER = -1  # up to torch 1.12 the lines tell no sequence number
WORDS = (
    "Watchdog caught collective operation timeout",
    "WorkNCCL(",
    "last enqueued",
    "ast completed",
    "didn't join collective",
    "joined but didn't finish",
    "lagging/dead/mismatched",
    " ranks:",
    "] started ",
    "] finished ",
    "Timeout at collective",
)
_GROUP = re.compile(
    r"\[PG ?(?:ID )?(?P<id>\d+)?(?: ?PG GUID ?(?P<guid>\d[^\s(\]]*)?)? ?(?:\((?P<name>[^)]*)\))? ?Rank \d+\]"
)
_WORK = re.compile(
    r"Work(?:NCCL|HCCL|MCCL|XCCL|Gloo)?\(\s*(?:(?:SeqNum|Seq)=(?P<seq>\d+), ?)?OpType=(?P<op>\w+)(?:,"
    r" ?TensorShape=(?P<shape>\[[^\]]*\]))?"
    r"(?:, ?NumelIn=(?P<nin>\d+))?(?:, ?NumelOut=(?P<nout>\d+))?(?:, ?Timeout\(ms\)=(?P<timeout>\d+))?"
)
_RAN = re.compile(r"\) ran for (?P<ran>\d+) milliseconds")
_PROGRESS = re.compile(
    r"(?:(?:work sequence id|at (?:\w+ )?work): ?(?P<at>\d+).*?)?[Ll]ast enqueued (?:\w+ )?work: ?(?P<enqueued>-?\d+)"
    r"(?:, last started (?:\w+ )?work: ?-?\d+)?,? ?last completed (?:\w+ )?work: ?(?P<completed>-?\d+)"
)
_LAGGING = re.compile(
    r"\[(?P<ranks>\d+(?:, ?\d+)*)\] (?:finished collective #(?P<finished>\d+), but didn't join collective #"
    r"(?P<missing>\d+)|joined"
    r" but didn't finish collective #(?P<unfinished>\d+))"
)
_HEAD = re.compile(r"#(?P<seq>\d+) (?P<state>started|finished) ranks:")
_MEMBERS = re.compile(r"\[(?P<ranks>\d+(?:, ?\d+)*)\] (?P<state>started|finished) (?P<op>\w+)")


class WatchdogReader:
    """Reads lines in order; the desync report spans several, whose heads give the number."""

    def __init__(self) -> None:
        self._head: tuple[int, str] | None = None

    def read(self, line: LogLine, where: str) -> object | None:
        """The record of a line, or None."""
        text = line.text
        if (work := _WORK.search(text)) and ("imeout" in text or "TIMEOUT" in text or "async exception" in text):
            return self._timeout(line, work, where) if "async exception" not in text else None
        if progress := _PROGRESS.search(text):
            return self._progress(line, progress, where)
        return self._desync(text, where)

    def _timeout(self, line: LogLine, work: re.Match[str], where: str) -> WorkTimeout:
        ran = _RAN.search(line.text)
        number = {name: int(work[name]) if work[name] else None for name in ("nin", "nout", "timeout")}
        if number["nin"] is None and work["shape"]:
            number["nin"] = _elements(work["shape"])
        return WorkTimeout(
            line.origin.rank,
            group_of(line.text),
            int(work["seq"]) if work["seq"] else NO_NUMBER,
            work["op"],
            number["nin"],
            number["nout"],
            number["timeout"],
            int(ran["ran"]) if ran else None,
            where,
            line.text[:400],
            line.time,
            line.origin.host,
        )

    def _progress(self, line: LogLine, found: re.Match[str], where: str) -> GroupProgress:
        return GroupProgress(
            line.origin.rank,
            group_of(line.text),
            int(found["enqueued"]),
            int(found["completed"]),
            int(found["at"]) if found["at"] else None,
            where,
            line.text[:400],
            line.time,
            line.origin.host,
        )

    def _desync(self, text: str, where: str) -> DesyncLine | DesyncState | None:
        if lagging := _LAGGING.search(text):
            finished, missing = lagging["finished"], lagging["missing"] or lagging["unfinished"]
            ranks = _ranks(lagging["ranks"])
            return DesyncLine(ranks, int(finished) if finished else None, int(missing), where, text.strip())
        if head := _HEAD.search(text):
            self._head = int(head["seq"]), head["state"]
        elif self._head and (members := _MEMBERS.search(text)):
            return DesyncState(*self._head, _ranks(members["ranks"]), members["op"], where, text.strip())
        return None


def group_of(text: str) -> str:
    """Name of the group that a line is about: its description where printed, else its id; empty in old versions."""
    found = _GROUP.search(text)
    if not found:
        return ""
    return found["name"] or found["guid"] or found["id"] or ""


def _ranks(listed: str) -> tuple[int, ...]:
    return tuple(int(rank) for rank in listed.split(","))


def _elements(shape: str) -> int:
    """Number of elements of "[2, 3]"."""
    total = 1
    for part in re.findall(r"\d+", shape):
        total *= int(part)
    return total
