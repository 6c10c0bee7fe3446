"""Source: one file of evidence, read with bounded memory; Gap: what could not be read; Parser: how a kind is read.

Standard library only: the node side reads with the same code.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SAMPLE_BYTES = 65_536
WHOLE_FILE_LIMIT = 256 << 20
TEXT_LIMIT = 4 << 30
LINE_LIMIT = 65_536
CHUNK_BYTES = 1 << 20


class UnreadableError(ValueError):
    """A file that a parser must refuse or cannot read; the message becomes a Gap."""


@dataclass(frozen=True, order=True)
class Gap:
    """Something that could not be looked at. `blinding` when a healthy answer would then be a guess."""

    where: str
    why: str
    blinding: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(frozen=True)
class Source:
    """A file of evidence. `name` is its path below the directory that was given, with `/`."""

    name: str
    path: Path
    gaps: list[Gap] = field(default_factory=list, compare=False, repr=False)

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def sample(self) -> bytes:
        """The first 64 KiB and, of a longer file, the last 64 KiB: enough for `Parser.sniff`."""
        with self.path.open("rb") as stream:
            head = stream.read(SAMPLE_BYTES)
            if self.size <= len(head):
                return head
            stream.seek(max(len(head), self.size - SAMPLE_BYTES))
            return head + b"\n" + stream.read(SAMPLE_BYTES)

    def read(self, limit: int = WHOLE_FILE_LIMIT) -> bytes:
        """The whole file; raises UnreadableError when it is larger than `limit` bytes."""
        if self.size > limit:
            raise UnreadableError(f"{self.size:,} bytes is more than the {limit:,} read of such a file")
        return self.path.read_bytes()

    def text(self, limit: int = WHOLE_FILE_LIMIT) -> str:
        return self.read(limit).decode(errors="replace")

    def chunks(self, limit: int = TEXT_LIMIT) -> Iterator[bytes]:
        """The data in pieces of at most 1 MiB; holes of sparse files are passed over, NUL bytes removed."""
        left = limit
        for start, end in self._extents():
            with self.path.open("rb") as stream:
                stream.seek(start)
                while start < end and left > 0:
                    piece = stream.read(min(CHUNK_BYTES, end - start, left))
                    if not piece:
                        break
                    start, left = start + len(piece), left - len(piece)
                    yield piece.replace(b"\0", b"") if b"\0" in piece else piece
        if left <= 0:
            self.note(f"only the first {limit:,} bytes were read")

    def lines(self, limit: int = TEXT_LIMIT) -> Iterator[tuple[int, str]]:
        """(line number from 1, text without its end). A line longer than 64 KiB is cut there, and a gap says so."""
        lines = (line for block in self.blocks(limit) for line in block.split(b"\n")[:-1])
        for number, line in enumerate(lines, start=1):
            yield number, self._bounded(line).decode(errors="replace").rstrip("\r\n")

    def blocks(self, limit: int = TEXT_LIMIT) -> Iterator[bytes]:
        """Pieces of whole lines, each ending in a newline. Of a line that no piece holds the first 64 KiB are given."""
        tail = b""
        cut = False  # inside a line whose first part was already given
        for chunk in self.chunks(limit):
            data = tail + chunk
            end = data.rfind(b"\n") + 1
            whole, tail = data[:end], data[end:]
            if cut and end:
                whole, cut = whole[whole.index(b"\n") + 1 :], False
            if len(tail) > LINE_LIMIT:
                whole += b"" if cut else self._bounded(tail) + b"\n"
                tail, cut = b"", True
            if whole:
                yield whole
        if tail and not cut:
            yield tail + b"\n"

    def note(self, why: str, *, blinding: bool = True) -> None:
        gap = Gap(self.name, why, blinding)
        if gap not in self.gaps:
            self.gaps.append(gap)

    def _bounded(self, line: bytes) -> bytes:
        if len(line) > LINE_LIMIT:
            self.note(f"a line is longer than {LINE_LIMIT:,} bytes: only its start was read")
        return line[:LINE_LIMIT]

    def _extents(self) -> Iterator[tuple[int, int]]:
        """(start, end) of the parts that hold data; the whole file where the system cannot tell."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            end, size = 0, os.fstat(descriptor).st_size
            while end < size:
                try:
                    start = os.lseek(descriptor, end, os.SEEK_DATA)
                except OSError as error:
                    if error.errno != errno.ENXIO:
                        yield end, size
                    return
                end = os.lseek(descriptor, start, os.SEEK_HOLE)
                yield start, end
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class Parser:
    """How one kind of file is recognised and read.

    `sniff(sample, name)` gives a confidence from 0 to 1; it looks at content, the name only helps. A file goes to the
    parsers that say 1.0 alone; where none is that sure, to all that say more than 0 (a log mix holds many kinds).
    `parse(source)` yields frozen records; UnreadableError or ValueError becomes a Gap, `source.note` adds one.
    """

    name: str
    sniff: Callable[[bytes, str], float]
    parse: Callable[[Source], Iterable[object]]
    magic: bytes = b""  # a file that starts so is asked of this parser first


def looks_like_text(sample: bytes) -> bool:
    """Whether a sample is text: few control characters, NUL bytes aside (crashed hosts leave runs of them)."""
    bare = sample.replace(b"\0", b"")
    if not bare:
        return False
    return len(bare.translate(None, bytes(range(1, 9)) + bytes(range(14, 27)))) >= 0.95 * len(bare)


def named_rank(name: str) -> int | None:
    """The rank that a path tells by that word (`ranks/3/attempt-0/stderr`, `nccl_trace_rank_12`), or None."""
    base = name.rsplit("/", 1)[-1]
    found = re.search(r"(?:^|/)ranks?/(\d+)/", name) or re.search(r"(?i)rank[_\-.: ]?(\d+)", base)
    return int(found[1]) if found else None


def rank_in_name(name: str) -> int | None:
    """The same, where a lone number (`fr_3.pkl`) is a rank too: in names of dumps and stacks, not of logs."""
    base = name.rsplit("/", 1)[-1]
    numbers = re.findall(r"\d+", re.sub(r"\.(?:txt|log|json|pkl|pickle|gz|out|err)$", "", base))
    lone = int(numbers[0]) if len(numbers) == 1 else None
    named = named_rank(name)
    return lone if named is None else named
