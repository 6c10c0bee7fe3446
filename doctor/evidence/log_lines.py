"""One log line → who wrote it, when, and the message: every launcher and collector puts its own prefix in front."""

from __future__ import annotations

import calendar
import re
import time
from dataclasses import dataclass, replace

MESSAGE_LIMIT = 4_096  # characters of a line that patterns look at: some need time that grows with its square
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TIME = r"(?P<time>\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,:]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
_NAME = r"[A-Za-z0-9][\w.-]*"
_LINK = re.compile(r"\[([^\]\s]{1,200})\]\(https?://[^)\s]{1,300}\)")  # what a mail or forum made of an address
# Prefixes that may stand one after the other, in any order.
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[(?:\d+,)?(?P<rank>\d+)\]<std(?:out|err|diag)>:\s?",  # mpirun --tag-output, horovodrun
        r"\[rank(?P<rank>\d+)\]:?\s?",  # torch and torchrun
        rf"\[?(?P<host>{_NAME}):(?P<pid>\d+):\d+:\d+\]\s+",  # UCX
        rf"\[(?P<host>{_NAME}(?<!\.py)(?<!\.cc)(?<!\.cpp)):(?P<pid>\d+)\]\s+",  # Open MPI
        r"\{\"(?:log|message|msg|text)\": ?\"",  # docker's and others' JSON lines
        r"\[(?:default|worker)?\d+\]:\s?",  # torchrun -t, others: a local rank
        r"(?P<rank>\d{1,6}): ",  # srun -l
        r"\((?:\S+ )?pid=(?P<pid>\d+)(?:, ip=(?P<host>[\w.:-]+))?\)\s?",  # Ray
        rf"\[?{_TIME}\]?(?: ?\||:)?\s*",  # Kubernetes, docker, logging
        rf"\[pod/(?P<host>{_NAME})/[\w.-]+\]\s?",  # kubectl logs --prefix
        rf"(?P<host>{_NAME})\s+(?:\||>>)\s",  # docker compose, and others
        r"\|\s+",
        r">\s+",  # a quotation
        rf"\((?P<host>{_NAME}), rank=(?P<rank>\d+)(?:, pid=(?P<pid>\d+))?[^)]*\)\s?",  # SkyPilot
        (  # pdsh, clush
            rf"(?P<host>{_NAME}(?<!Error)(?<!Exception)(?<!WARN)(?<!INFO)(?<!E[A-Z]\d{{4}})): (?=\S+:\d+:\d+"
            r" \[|\[|NCCL|Traceback|RuntimeError|torch)"
        ),
        r"(?:stdout|stderr) [FP] ",  # CRI
    )
)
_NCCL = re.compile(rf"(?P<host>{_NAME}?)?:(?P<pid>\d+):(?P<tid>\d+)\s+\[(?P<device>-?\d+)\]\s+(?P<rest>.*)", re.DOTALL)
_NCCL_BARE = re.compile(r"\[(?P<device>-?\d+)\]\s+(?P<rest>(?:\S+:\d+ (?:\([\w:~]+\) )?)?(?:R?CCL|NCCL) .*)", re.DOTALL)
_LEVEL = re.compile(
    r"(?:(?P<where>[\w./-]+[: ]\d+)(?: \([\w:~]+\))? )?NCCL"
    r" (?P<level>WARN|INFO|TRACE|ERROR|ABORT|VERSION)\s+(?P<text>.*)",
    re.DOTALL,
)
_GLOG = re.compile(
    r"(?P<before>.{0,80}?)\[?(?P<severity>[IWEF])(?P<month>\d{1,2}?)(?P<day>\d\d)"
    r" (?P<clock>\d\d:\d\d:\d\d)(?:\.\d+)?\s+(?:\d+ )?"
    r"(?P<where>[\w.]+:\d+)\]\s*(?P<text>.*)",
    re.DOTALL,
)
_GLOG_SHORT = re.compile(r"\[(?P<severity>[IWEF]) (?P<where>[\w./]+:\d+)\]\s*(?P<text>.*)", re.DOTALL)
_TORCH_RANK = re.compile(
    r"\[(?:PG(?: ID)? ?\S*(?: PG GUID ?(?:\d[^ \]]*)?(?: ?\([^)]*\))?| \([^)]*\))? ?)?Rank (?P<rank>\d+)\]"
)


@dataclass(frozen=True)
class Origin:
    """Who wrote a line, as far as it tells. `device` is the CUDA index that NCCL prints."""

    host: str | None = None
    pid: int | None = None
    rank: int | None = None
    device: int | None = None

    def __str__(self) -> str:
        rank = None if self.rank is None else f"rank {self.rank}"
        process = None if self.pid is None else f"pid {self.pid}"
        return ", ".join(part for part in (rank, self.host, process) if part) or "unnamed process"


@dataclass(frozen=True)
class LogLine:
    """A line without its prefixes. `level` is NCCL's (WARN, INFO, …) or glog's (I, W, E, F) or empty."""

    origin: Origin
    text: str
    level: str = ""
    source: str = ""
    time: float | None = None


def clean(text: str) -> str:
    """Text without terminal escapes and control characters."""
    plain = _ESCAPES.sub("", text)
    return _LINK.sub(r"\1", plain) if "](http" in plain else plain


def seconds(stamp: str) -> float | None:
    """Seconds since the epoch of "2026-02-18T10:28:25.497Z" and its relatives; no zone is UTC. None if not a time."""
    parts = re.match(
        r"(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,:](\d+))?(?:([+-])(\d\d):?(\d\d))?", stamp
    )
    if not parts:
        return None
    whole = calendar.timegm((*(int(part) for part in parts.groups()[:6]), 0, 0, 0))
    shift = (int(parts[9]) * 3600 + int(parts[10]) * 60) * (-1 if parts[8] == "-" else 1) if parts[8] else 0
    return whole - shift + (float(f"0.{parts[7]}") if parts[7] else 0.0)


def parse_line(raw: str, default: Origin | None = None, year: int | None = None) -> LogLine:
    """Take the prefixes off a line. What the line says of its writer goes before `default` (the file's)."""
    origin, text, when = _strip_prefixes(clean(raw[:MESSAGE_LIMIT]), default or Origin())
    nccl = _NCCL.match(text) or _NCCL_BARE.match(text)
    if nccl:
        found = nccl.groupdict()
        origin = replace(
            origin,
            host=found.get("host") or origin.host,
            pid=int(found["pid"]) if found.get("pid") else origin.pid,
            device=int(found["device"]),
        )
        text = nccl["rest"]
    if level := _LEVEL.match(text):
        return LogLine(origin, level["text"], level["level"], level["where"] or "", when)
    return _torch_line(text, origin, when, year)


def _strip_prefixes(text: str, origin: Origin) -> tuple[Origin, str, float | None]:
    when: float | None = None
    found = True
    while found:
        found = False
        for prefix in _PREFIXES:
            match = prefix.match(text)
            if match and match.end():
                values = match.groupdict()
                when = seconds(values["time"]) if values.get("time") else when
                numbers = {name: int(values[name]) for name in ("rank", "pid") if values.get(name)}
                origin = replace(origin, host=values.get("host") or origin.host, **numbers)
                text, found = text[match.end() :], True
    return origin, text, when


def _torch_line(text: str, origin: Origin, when: float | None, year: int | None) -> LogLine:
    level = where = ""
    if glog := _GLOG.match(text) or _GLOG_SHORT.match(text):
        found = glog.groupdict()
        level, where = found["severity"], found["where"]
        text = found.get("before", "") + found["text"] if found.get("before") else found["text"]
        if when is None and found.get("clock"):
            when = _glog_time(found["month"], found["day"], found["clock"], year)
    if origin.rank is None and (rank := _TORCH_RANK.search(text[:200])):
        origin = replace(origin, rank=int(rank["rank"]))
    return LogLine(origin, text, level, where, when)


def _glog_time(month: str, day: str, clock: str, year: int | None) -> float | None:
    """glog writes no year: the given one, or this one. Only differences between lines are used."""
    return seconds(f"{year or time.gmtime().tm_year}-{int(month):02d}-{int(day):02d}T{clock}")
