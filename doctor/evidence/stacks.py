"""Stacks of processes: py-spy text and JSON, faulthandler, gdb, bare frame lists → Stack.

Frames are innermost first, as all these tools print them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from doctor.evidence.rank_table import Frame
from doctor.evidence.source import Parser, Source, looks_like_text, rank_in_name

MAX_FRAMES = 256
MAX_THREADS = 4096


@dataclass(frozen=True)
class Thread:
    name: str
    frames: tuple[Frame, ...]  # innermost first
    active: bool | None = None  # None where the tool does not tell
    native: bool = False  # frames of C or C++ (gdb, py-spy --native)
    os_id: int | None = None
    owns_gil: bool = False


@dataclass(frozen=True)
class Stack:
    """All threads of one process at one moment."""

    rank: int | None
    where: str
    tool: str  # py-spy, faulthandler, gdb, frames
    threads: tuple[Thread, ...]
    pid: int | None = None
    label: str = ""  # what else names the process: its title or command
    host: str = ""

    @property
    def main(self) -> Thread:
        """The main thread; where none is called so, the one with a `<module>` frame, else the last."""
        for thread in self.threads:
            if thread.name == "MainThread" or (thread.os_id is not None and thread.os_id == self.pid):
                return thread
        for thread in self.threads:
            if any(frame.name == "<module>" for frame in thread.frames):
                return thread
        return self.threads[-1]


_THREAD = re.compile(
    r"""^(?P<prefix>.{0,120}?)(?:
      Thread\ (?P<pyspy>0[xX][0-9A-Fa-f]+|\d+)\ \((?P<state>active|idle)(?P<gil>\+gil)?\)(?::\ "(?P<name>[^"]*)")?
    | (?P<current>Current\ )?[Tt]hread\ 0x[0-9a-f]+(?:\ \[(?P<label>[^\]]*)\])?\ \(most\ recent\ call\ first\):
    | \*?\ *thread\ \#(?P<lldb>\d+)(?:,\ name\ =\ '(?P<called>[^']*)')?.*
    | Thread\ (?P<gdb>\d+)\ \((?:Thread\ 0x[0-9a-f]+\ )?\(?LWP\ (?P<lwp>\d+)\)?(?:\ "(?P<title>[^"]*)")?.*
    )""",
    re.X,
)
_UNNAMED = dict.fromkeys(_THREAD.groupindex) | {"gdb": "1"}
_PYSPY_FRAME = re.compile(r"^\s*(?P<name>\S.*?) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)?\s*$")
_FAULT_FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+)(?: in (?P<name>.+))?$')
_GDB_FRAME = re.compile(
    r"^\s*#\d+\s+(?:0x[0-9a-f]+ in )?(?P<name>[^\s(]+(?:<[^(]*>)?[^\s(]*)\s*\(.*?"
    r"(?:\) (?:at (?P<file>[^\s:]+):(?P<line>\d+)|from (?P<lib>\S+))|\)?\s*$)"
)
_LLDB_FRAME = re.compile(
    r"^\s*\*?\s*frame #\d+: 0x[0-9a-f]+ (?P<lib>[^`\s]+)`(?P<name>[^(+]+?)(?:\(.*?\))?"
    r"(?: at (?P<file>[^\s:]+):(?P<line>\d+)\S*)?(?: \+ \d+)?\s*$"
)
_PROCESS = re.compile(r"Process (?P<pid>\d+): (?P<command>.*)")
_TIMED_OUT = re.compile(r"Process (?P<rank>\d+) timed out with traceback:")  # torch's own tests: the rank
_FRAMES = (_FAULT_FRAME, _GDB_FRAME, _LLDB_FRAME, _PYSPY_FRAME)
_PREFIX_RANK = re.compile(r"(?i)rank[\s:=#]*(\d+)|^\[?(\d+)\]?:")
_ANY_THREAD = re.compile(
    rb"Thread (?:0[xX][0-9A-Fa-f]+|\d+) \((?:active|idle)|hread 0x[0-9a-f]+ (?:\[[^\]]*\] )?\(most recent call first\)"
    rb"|^Thread \d+ \(.*LWP \d+|^\*? *thread #\d+|^#\d+\s+(?:0x[0-9a-f]+ in )?\S+ \(",
    re.M,
)
_MARKS = (b"hread ", b"#0 ")  # one of which any text with stacks holds
_DOCUMENT = re.compile(rb"\s*[\[{]\s*[\[{\"\]}]")  # JSON: a prefix such as [rank0] is none
_BARE = re.compile(
    r"^\s*[\w.<>:~\[\], ]+ \([^()\s]+\.(?:py|so|cc|cpp|h)\b[^()]*(?::\d+)?\)?$|^cu[A-Z]\w+$|^caller: \w+"
)


def sniff(sample: bytes, name: str) -> float:
    """Whether a text holds stacks; a log mix may hold some too."""
    if not looks_like_text(sample) or _DOCUMENT.match(sample):
        return 0.0
    return 0.3 if _ANY_THREAD.search(sample) or _is_bare(sample) else 0.05


def parse(source: Source) -> Iterator[Stack]:
    """Every process whose threads the text shows."""
    if not any(any(mark in chunk for mark in _MARKS) for chunk in source.chunks()) and source.size >= 4096:
        return
    if source.size < 4096 and _is_bare(source.read(4096)):
        yield from _bare(source)
        return
    reader = _Reader(source.name)
    for _, line in source.lines():
        yield from reader.feed(line)
    yield from reader.finish()


class _Reader:
    """Joins lines to threads and processes; a prefix (`[rank3]:`, `7: `) tells the process where there is one."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.pid: int | None = None
        self.label = ""
        self.rank: int | None = None
        self.titled: int | None = None  # by a heading
        self.threads: list[Thread] = []
        self.header: Mapping[str, str | None] | None = None
        self.prefix = ""
        self.frames: list[Frame] = []

    def feed(self, line: str) -> Iterator[Stack]:
        if "hread" not in line and "Process " not in line:
            if self.header is None and line.startswith("#0 "):
                self.header = _UNNAMED  # gdb's `bt` of one thread has no header
            if self.header is not None:
                self.frame(line)
            return
        if timed_out := _TIMED_OUT.match(line):
            yield from self.finish()
            self.titled = int(timed_out["rank"])
        elif (process := _PROCESS.search(line)) and "Thread" not in line:
            yield from self.finish()
            self.pid, self.label = int(process["pid"]), process["command"][:300]
        elif header := _THREAD.match(line):
            rank = _prefix_rank(header["prefix"])
            if rank != self.rank or (header["current"] and self.threads) or self.has_main(header["name"]):
                yield from self.finish()
            self.end_thread()
            self.rank, self.prefix, self.header = rank, header["prefix"], header.groupdict()
        elif self.header is not None:
            self.frame(line)

    def has_main(self, name: str | None) -> bool:
        """Whether a thread of this name is a main thread although the process has one: it is another process."""
        known = [thread.name for thread in self.threads] + [self.header["name"] if self.header else ""]
        return name == "MainThread" and name in known

    def frame(self, line: str) -> None:
        text = line[len(self.prefix) :] if self.prefix and line.startswith(self.prefix) else line
        found = next((match for form in _FRAMES if (match := form.match(text))), None)
        if found and len(self.frames) < MAX_FRAMES:
            self.frames.append(_frame(found))
        elif text.strip() and not text.startswith((" ", "\t", "#")):
            self.end_thread()

    def end_thread(self) -> None:
        if self.header is not None and len(self.threads) < MAX_THREADS:
            self.threads.append(_thread(self.header, self.frames))
        self.header, self.frames = None, []

    def finish(self) -> Iterator[Stack]:
        tool = _tool(self.header) if self.header is not None else ""
        self.end_thread()
        if self.threads:
            told = (self.rank, self.titled, self._rank_of_file(), _titled(self.label))
            rank = next((one for one in told if one is not None), None)
            kind = tool or ("gdb" if self.threads[0].native else "py-spy")
            yield Stack(rank, self.where, kind, tuple(self.threads), self.pid, self.label)
        self.threads, self.pid, self.label = [], None, ""

    def _rank_of_file(self) -> int | None:
        """The rank in the file's name, where that number is not the process's."""
        rank = rank_in_name(self.where)
        return None if rank == self.pid else rank


def _titled(label: str) -> int | None:
    """The rank in the title of an inference worker: of tensor parallelism, where there is no other axis."""
    title = label.split()[0] if label else ""
    found = re.search(r"(?:_|-|::)TP(\d+)", title)
    return int(found[1]) if found and not re.search(r"(?:_|-|::)PP\d", title) else None


def _thread(header: Mapping[str, str | None], frames: list[Frame]) -> Thread:
    state = header["state"]
    identity = header["lwp"] or (header["pyspy"] or "").removeprefix("0x").removeprefix("0X")
    native = header["gdb"] is not None or header["lldb"] is not None or any(".so" in frame.filename for frame in frames)
    return Thread(
        name=(header["name"] or header["label"] or header["title"] or header["called"] or "")[:80],
        frames=tuple(frames),
        active=None if state is None else state == "active",
        native=native,
        os_id=int(identity) if identity.isdigit() else None,
        owns_gil=header["gil"] is not None,
    )


def _tool(header: Mapping[str, str | None]) -> str:
    return "py-spy" if header["pyspy"] else "gdb" if header["gdb"] or header["lldb"] else "faulthandler"


def _frame(found: re.Match[str]) -> Frame:
    parts = found.groupdict()
    file = parts.get("file") or parts.get("lib") or ""
    return Frame((parts.get("name") or "?")[:200], file[-300:], int(parts.get("line") or 0))


def _prefix_rank(prefix: str) -> int | None:
    found = _PREFIX_RANK.search(prefix.strip()) if prefix.strip() else None
    return int(found[1] or found[2]) if found else None


def _is_bare(sample: bytes) -> bool:
    """Whether most lines are frames without any header: what people paste."""
    if len(sample) > 4096 or _ANY_THREAD.search(sample):
        return False
    lines = [line for line in sample.decode(errors="replace").splitlines() if line.strip()]
    return bool(lines) and 2 * sum(bool(_BARE.match(line)) for line in lines) > len(lines)


def _bare(source: Source) -> Iterator[Stack]:
    frames = []
    for _, line in source.lines():
        text = line.strip().removeprefix("caller: ")
        found = _PYSPY_FRAME.match(text)
        if text:
            frames.append(_frame(found) if found else Frame(text[:200], "", 0))
    yield Stack(rank_in_name(source.name), source.name, "frames", (Thread("", tuple(frames[:MAX_FRAMES])),))


def sniff_json(sample: bytes, name: str) -> float:
    head = sample.lstrip()[:1]
    return 1.0 if head in (b"[", b"{") and re.search(rb'"(?:os_thread_id|owns_gil|dlaunch_stack)"', sample) else 0.0


def parse_json(source: Source) -> Iterator[Stack]:
    """py-spy's JSON (a list of threads, maybe of several processes) or our node side's wrapping of it."""
    document = json.loads(source.read())
    wrapped = document if isinstance(document, dict) else {"threads": document}
    threads = [thread for thread in wrapped.get("threads") or () if isinstance(thread, dict)]
    rank = wrapped.get("rank", rank_in_name(source.name))
    by_process: dict[Any, list[Thread]] = {}
    for thread in threads[:MAX_THREADS]:
        by_process.setdefault(thread.get("pid"), []).append(_json_thread(thread))
    for pid, found in by_process.items():
        label, host = str(wrapped.get("label", ""))[:300], str(wrapped.get("host", ""))[:80]
        yield Stack(rank, source.name, "py-spy", tuple(found), pid, label, host)


def _json_thread(thread: Mapping[str, Any]) -> Thread:
    frames = tuple(
        Frame(
            str(one.get("name", ""))[:200],
            str(one.get("short_filename") or one.get("filename") or "")[-300:],
            int(one.get("line") or 0),
        )
        for one in (thread.get("frames") or ())[:MAX_FRAMES]
        if isinstance(one, dict)
    )
    native = any(".so" in frame.filename for frame in frames)
    os_id = thread.get("os_thread_id")
    return Thread(
        str(thread.get("thread_name") or "")[:80],
        frames,
        bool(thread.get("active")),
        native,
        os_id if isinstance(os_id, int) else None,
        bool(thread.get("owns_gil")),
    )


PARSERS = (
    Parser("stacks", sniff, parse),
    Parser("stacks in JSON", sniff_json, parse_json),
)
