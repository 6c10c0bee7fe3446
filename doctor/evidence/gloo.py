"""gloo's last words: it aborts the process that received too much, and its peers end where they lost it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from doctor.evidence.rank_table import Frame
from doctor.evidence.source import Parser, Source, looks_like_text, rank_in_name

_PLACE = b"gloo/transport"  # stands in every line about a lost peer
_WORDS = b"op.preamble.length <= op.nbytes"
_SIZES = re.compile(r"(?:\[?rank\s?(\d+)\]?.*)?op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
_LOST = re.compile(rb"gloo/transport/\S+ (?:Connection closed by peer|Read error|Write error)")
_TRACED = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
OVERLAP = 512  # a line may lie across two chunks
TRACE_BYTES = 64 << 10  # before the error that a traceback may take


@dataclass(frozen=True)
class SizeClash:
    """A process received `received` bytes of a peer where its own call expected `expected`."""

    rank: int | None
    where: str
    received: int
    expected: int


@dataclass(frozen=True)
class LostPeer:
    """Where a rank was when a peer's end ended it: the frames of its traceback, innermost first."""

    rank: int | None
    where: str
    frames: Sequence[Frame]


def sniff(sample: bytes, name: str) -> float:
    return 0.05 if looks_like_text(sample) else 0.0


def parse(source: Source) -> Iterator[SizeClash | LostPeer]:
    """The first clash of a log, else the first loss of a peer."""
    tail, lost = b"", None
    for chunk in source.chunks():
        text = tail + chunk
        tail = text[-OVERLAP:]
        if (at := text.find(_WORDS)) >= 0 and (clash := _clash(text, at, source)):
            yield clash
            return
        if lost is None and _PLACE in text and (found := _LOST.search(text)):
            lost = _loss(text[max(0, found.start() - TRACE_BYTES) : found.start()], source)
    if lost:
        yield lost


def _clash(text: bytes, at: int, source: Source) -> SizeClash | None:
    line = text[text.rfind(b"\n", 0, at) + 1 : at + OVERLAP].decode(errors="replace")
    found = _SIZES.search(line)
    if not found:
        return None
    rank = int(found[1]) if found[1] else rank_in_name(source.name)
    return SizeClash(rank, source.name, int(found[2]), int(found[3]))


def _loss(before: bytes, source: Source) -> LostPeer | None:
    """The traceback that ends where the loss is told."""
    trace = before[before.rfind(b"Traceback (most recent call last)") :].decode(errors="replace")
    frames = [Frame(one["name"], one["file"][-300:], int(one["line"])) for one in _TRACED.finditer(trace)]
    return LostPeer(rank_in_name(source.name), source.name, tuple(reversed(frames))) if frames else None


PARSERS = (Parser("gloo", sniff, parse),)
