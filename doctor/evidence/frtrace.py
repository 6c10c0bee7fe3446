"""The text that torchfrtrace printed: people keep it when the dumps are gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from doctor.evidence.source import Parser, Source, looks_like_text


@dataclass(frozen=True)
class TraceError:
    """One collective that the analyser found at fault. `culprits`: rank → (type of error, what differs)."""

    where: str
    line: int
    seq: int
    group: str
    op: str
    sizes: str
    culprits: tuple[tuple[int, str, str], ...]
    missing: tuple[int, ...] = ()
    frames: tuple[str, ...] = ()


_START = re.compile(
    r"Collective (?:sequence number: )?(?P<seq>\d+) (?:at entry \d+ (?:has )?|has )?errors"
    r"|Not all ranks joining collective:? (?:sequence number: )?(?P<absent>\d+)"
)
_FIELD = re.compile(r"^\s*(group info|collective|input sizes|missing ranks)\s*:\s*(.*)$")
_CULPRIT = re.compile(
    r"Culprit rank (\d+); Error type: (\w+)(?:, (.*?))?(?=, Culprit rank|$)",
)
_FRAME = re.compile(r"^\s*(\S+ at \S+:\d+)\s*$")


def sniff(sample: bytes, name: str) -> float:
    return 0.9 if looks_like_text(sample) and _START.search(sample.decode(errors="replace")) else 0.0


def parse(source: Source) -> Iterator[TraceError]:
    """The errors in the order of the text."""
    block: list[str] = []
    start = 0
    for number, line in source.lines():
        if _START.search(line):
            yield from _error(source.name, start, block)
            block, start = [], number
        block.append(line)
    yield from _error(source.name, start, block)


def _error(where: str, line: int, block: list[str]) -> Iterator[TraceError]:
    found = _START.search(block[0]) if block else None
    if found is None:
        return
    fields = {match[1]: match[2] for text in block if (match := _FIELD.match(text))}
    culprits = [culprit for text in block for culprit in _CULPRIT.findall(text)]
    yield TraceError(
        where,
        line,
        int(found["seq"] or found["absent"]),
        fields.get("group info", "").partition(":")[2] or fields.get("group info", ""),
        fields.get("collective", "").rpartition(":")[2],
        fields.get("input sizes", ""),
        tuple((int(rank), kind, text[:200]) for rank, kind, text in culprits),
        tuple(int(one) for one in re.findall(r"\d+", fields.get("missing ranks", ""))),
        tuple(match[1] for text in block if (match := _FRAME.match(text)))[:16],
    )


PARSERS = (Parser("torchfrtrace", sniff, parse),)
