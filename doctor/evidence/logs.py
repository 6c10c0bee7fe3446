"""Log files of any job: NCCL, torch, launchers, programs, in any mix and with any prefix → events and facts.

Lines of NCCL's INFO level go a fast way, by their first word; any other line is looked at only when it holds one of the
signatures' words. Equal events of one process are counted, not kept, so memory stays flat.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from doctor.evidence.log_blocks import as_bytes, decoded, text_blocks
from doctor.evidence.log_lines import MESSAGE_LIMIT, LogLine, Origin, clean, parse_line, seconds
from doctor.evidence.nccl_log import ProcessFacts
from doctor.evidence.signatures import any_of, find, signatures, word_filter
from doctor.evidence.source import Parser, Source, looks_like_text, named_rank
from doctor.evidence.watchdog import WORDS, WatchdogReader
from launcher.common.kernel_lines import (
    KERNEL_MARKS,
    KERNEL_WORDS,
    KernelEvent,
    match_kernel,
    parse_kernel,
    strip_stamp,
)

MAX_EVENTS = 20_000
MAX_PROCESSES = 32_768
MAX_PATHS = 64
MAX_WATCHDOG = 200_000


@dataclass(frozen=True)
class LogEvent:
    """A line that says something, by the kind of its signature. `count`: how often this process said it."""

    kind: str
    text: str
    origin: Origin
    where: str
    fields: Mapping[str, str] = field(default_factory=dict)
    time: float | None = None
    level: str = ""
    source: str = ""
    count: int = 1
    line: int = 0

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name) or ""


@dataclass(frozen=True)
class KernelRecord:
    """A kernel event with its file. `host` and `time` (seconds since the epoch) where the log tells them."""

    event: KernelEvent
    where: str
    host: str | None = None
    time: float | None = None


@dataclass(frozen=True)
class LogFile:
    """A log that was read: how many lines, the last time seen, and whether the job was seen to move."""

    name: str
    lines: int
    last_time: float | None = None
    paths: Mapping[str, int] = field(default_factory=dict)  # connections inside nodes, by transport
    ranks: frozenset[int] = frozenset()  # whose lines are in it, as its name and torch's prefixes tell


UNEXPLAINED = "nccl_warning"  # kind of NCCL's warnings that no signature names
_FAILURE = re.compile(
    r"(?i)fail|error|mismatch|invalid|unable|cannot|could not|timed? ?out|abort|corrupt|unknown|unexpected|missing"
    r"|denied|refused|exceed|\blost\b"
)
_INFO = "NCCL INFO "
_PREFIX_RANK = re.compile(r"\[rank(\d{1,6})\]")
BLOCKS_WITH_RANKS = 16  # all ranks that speak at all do so in a few blocks
# A watchdog's line that a terminal broke at its width goes on in the next ones, unless those begin anew.
_TORN = re.compile(r"Watchdog caught collective operation timeout: WorkNCCL\((?!.*\) ran for \d+ milliseconds)")
_FRESH = re.compile(r"\s*(?:\d+: )?\[(?:rank|[EWIF][ \d]|\d{4}-|PG )|.*Watchdog|Traceback")
TORN_LIMIT = 1_000
_TRACE_RETURN = re.compile(r"^\S+\.(?:cc|h|cu|c):\d+ -> \d+")


@cache
def _telling() -> re.Pattern[str]:
    """Matches every line outside NCCL's INFO level that is worth a closer look."""
    words = {signature.word for signature in signatures()}
    kernel = {mark.decode() for mark in KERNEL_MARKS}
    return any_of({*words, *WORDS, *kernel, "CCL ", " via NET", "-> NET/"})


@cache
def _watchdog() -> re.Pattern[str]:
    """Matches the lines that the watchdog's reader knows."""
    return any_of(WORDS)


class Writer(NamedTuple):
    """What a prefix tells: its process, and the fields that all its lines share."""

    process: ProcessFacts
    line: LogLine


class LogReader:
    """State of reading one log."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name
        self.year = time.gmtime(source.path.stat().st_mtime).tm_year
        self.default = Origin(rank=named_rank(source.name))
        self.events: dict[tuple[object, ...], LogEvent] = {}
        self.watchdog = WatchdogReader()
        self.timeouts: list[object] = []
        self.processes: dict[tuple[str | None, int | None, int | None], ProcessFacts] = {}
        self.by_prefix: dict[str, Writer] = {}
        self.words = word_filter()
        self.kernel_lines: list[tuple[int, str]] = []
        self.paths: dict[str, int] = {}
        self.lines = 0
        self.torn: tuple[int, str] | None = None  # number and text of a line that a terminal broke
        self.last_time: float | None = None
        self.previous = Origin()
        self.ranks = set() if self.default.rank is None else {self.default.rank}
        self.searched = 0

    def read(self, blocks: Iterable[str]) -> None:
        """Take blocks of whole lines, in order: bytes as Latin-1, which costs nothing; what is kept is decoded."""
        for block in blocks:
            known = tuple(self.paths)
            for path in known:
                self.paths[path] += block.count(f"{path}\n")
            if "[rank" in block and self.searched < BLOCKS_WITH_RANKS:
                self.searched += 1
                self.ranks.update(map(int, _PREFIX_RANK.findall(block)))
            lines = block.split("\n")[:-1]
            self._read_lines([pair for pair in enumerate(lines, self.lines + 1) if not pair[1].endswith(known)])
            self.lines += len(lines)
        if self.torn is not None:
            self._line(self.torn[0], as_bytes(self.torn[1]))

    def _read_lines(self, numbered: Iterable[tuple[int, str]]) -> None:
        """Lines that do not end in a known path: those come by the million and are counted by the block."""
        search, writer_of, paths, torn = _telling().search, self.by_prefix.get, self.paths, self.torn
        for number, line in numbered:
            if torn is not None:
                if _FRESH.match(line):
                    self._line(torn[0], as_bytes(torn[1]))
                else:
                    number, line = torn[0], torn[1] + line
                torn = None
            if (at := line.rfind(" via ")) > 0 and (path := line[at:]) in paths:  # learned in this very block
                paths[path] += 1
                continue
            prefix, info, message = line.partition(_INFO)
            if info:
                writer = writer_of(prefix)
                if writer is None or not writer.process.passes_over(message):
                    self._info(number, prefix, message)
            elif search(line):
                if _TORN.search(line) and len(line) < TORN_LIMIT:
                    torn = number, line
                else:
                    self._line(number, as_bytes(line))
        self.torn = torn

    def _info(self, number: int, prefix: str, message: str) -> None:
        if _TRACE_RETURN.match(message):
            return
        writer = self.by_prefix.get(prefix)
        if writer is None:
            writer = self._writer(number, prefix, message)
            if writer.process.passes_over(message):
                return
        like = writer.line
        line = LogLine(like.origin, clean(decoded(message)[:MESSAGE_LIMIT]), like.level, like.source, like.time)
        self._learn_path(message)
        writer.process.take(line.text)
        if self.words.search(message):
            self._event(number, line)

    def _writer(self, number: int, prefix: str, message: str) -> Writer:
        """Who writes lines of this prefix: the same for all of them."""
        line = parse_line(decoded(prefix + _INFO + message), self.default, self.year)
        if len(self.by_prefix) > MAX_EVENTS:
            self.by_prefix.clear()
        return self.by_prefix.setdefault(prefix, Writer(self._process(line.origin, number), line))

    def _kernel_line(self, number: int, text: str) -> bool:
        """Keep a line for the kernel's parser; whether it is the kernel's alone."""
        text = clean(text[:MESSAGE_LIMIT])
        if len(self.kernel_lines) < MAX_WATCHDOG:
            self.kernel_lines.append((number, text))
        return match_kernel(strip_stamp(text)[0]) is not None

    def _learn_path(self, message: str) -> None:
        """A path inside nodes is counted for the whole file: such lines come by the million."""
        _, via, path = message.partition(" via ")
        inside = via and message.startswith(("Chann", "Ring ")) and not path.startswith("NET")
        if inside and len(self.paths) < MAX_PATHS:
            self.paths.setdefault(via + path, 1)

    def _line(self, number: int, raw: bytes) -> None:
        if b"NCCL " not in raw and KERNEL_WORDS.search(raw) and self._kernel_line(number, raw.decode(errors="replace")):
            return
        line = parse_line(raw.decode(errors="replace"), self.default, self.year)
        if line.time is not None:  # glog's lines have no year: it is that of the last line that has one
            self.last_time, self.year = line.time, time.gmtime(line.time).tm_year
        record = self.watchdog.read(line, f"{self.name}:{number}") if _watchdog().search(line.text) else None
        if record is not None:
            if len(self.timeouts) < MAX_WATCHDOG:
                self.timeouts.append(record)
            return
        if "CCL version" in line.text or " via NET" in line.text or "-> NET/" in line.text or "opCount" in line.text:
            self._process(line.origin, number).take(line.text)
        self._event(number, line)

    def _event(self, number: int, line: LogLine) -> None:
        found = find(f"{line.source} {line.text}" if line.source else line.text)
        if found is None and line.level == "WARN" and _FAILURE.search(line.text):
            found = UNEXPLAINED, {}
        if found is None:
            return
        kind, fields = found
        origin = line.origin
        if origin == self.default and kind in _CONTINUATIONS:
            origin = self.previous
        self.previous = origin
        key = (kind, origin, *fields.items())
        old = self.events.get(key)
        if old is not None:
            self.events[key] = replace(old, count=old.count + 1)
        elif len(self.events) < MAX_EVENTS:
            where = f"{self.name}:{number}"
            self.events[key] = LogEvent(
                kind, line.text.strip()[:400], origin, where, fields, line.time, line.level, line.source, 1, number
            )

    def _process(self, origin: Origin, number: int) -> ProcessFacts:
        key = (origin.host, origin.pid, origin.device if origin.pid is None else None)
        if origin.pid is None and origin.rank is not None:
            key = (origin.host, -1 - origin.rank, None)
        if key not in self.processes and len(self.processes) >= MAX_PROCESSES:
            self.source.note(f"only the first {MAX_PROCESSES:,} processes of this log were looked at")
            return ProcessFacts(None, None, None, None, "")
        if key not in self.processes:
            self.processes[key] = ProcessFacts(
                origin.host, origin.pid, origin.device, origin.rank, f"{self.name}:{number}"
            )
        return self.processes[key]

    def records(self) -> Iterator[object]:
        """All that was found. Events get the rank that their process told at its initialisation."""
        facts = [process.record() for process in self.processes.values() if process.said_something]
        ranks = {(fact.host, fact.pid): fact.rank for fact in facts if fact.pid is not None}
        yield from facts
        for event in self.events.values():
            rank = event.origin.rank
            pid = event.origin.pid
            if rank is None and pid is not None and (known := ranks.get((event.origin.host, pid))) is not None:
                event = replace(event, origin=replace(event.origin, rank=known))
            yield event
        yield from self.timeouts
        texts = [text for _, text in self.kernel_lines]
        for found in parse_kernel(texts):
            number, text = self.kernel_lines[found.line - 1]
            yield KernelRecord(found, f"{self.name}:{number}", found.host, seconds(text))
        paths = {decoded(path).removeprefix(" via "): count for path, count in self.paths.items()}
        yield LogFile(self.name, self.lines, self.last_time, paths, frozenset(self.ranks))


# Messages that go on over several lines, of which only the first says who wrote them.
_CONTINUATIONS = frozenset(
    ("nvls_failed", "fabric_manager", "remote_error", "peer_closed", "report_host", "rank_status")
)


def sniff(sample: bytes, name: str) -> float:
    """Any text may hold log lines; documents of other kinds are surer of themselves."""
    return 0.3 if looks_like_text(sample) else 0.0


def parse(source: Source) -> Iterator[object]:
    reader = LogReader(source)
    reader.read(text_blocks(source))
    yield from reader.records()


PARSERS = (Parser("log", sniff, parse),)
