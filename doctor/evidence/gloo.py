"""gloo's last words when sizes differ: it aborts the process that received too much, and records nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from doctor.evidence.source import Parser, Source, looks_like_text, rank_in_name

_WORDS = b"op.preamble.length <= op.nbytes"
_SIZES = re.compile(r"(?:\[?rank\s?(\d+)\]?.*)?op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
OVERLAP = 512  # a line may lie across two chunks


@dataclass(frozen=True)
class SizeClash:
    """A process received `received` bytes of a peer where its own call expected `expected`."""

    rank: int | None
    where: str
    received: int
    expected: int


def sniff(sample: bytes, name: str) -> float:
    return 0.05 if looks_like_text(sample) else 0.0


def parse(source: Source) -> Iterator[SizeClash]:
    """The first clash of a log."""
    tail = b""
    for chunk in source.chunks():
        text = tail + chunk
        at = text.find(_WORDS)
        if at >= 0:
            line = text[text.rfind(b"\n", 0, at) + 1 : at + OVERLAP].decode(errors="replace")
            if found := _SIZES.search(line):
                rank = int(found[1]) if found[1] else rank_in_name(source.name)
                yield SizeClash(rank, source.name, int(found[2]), int(found[3]))
                return
        tail = text[-OVERLAP:]


PARSERS = (Parser("gloo", sniff, parse),)
