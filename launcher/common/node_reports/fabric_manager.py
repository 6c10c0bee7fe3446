"""Log of nv-fabricmanager."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_LINE = re.compile(
    r"^\[(?P<time>[A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d)\] \[(?P<level>\w+)\] \[tid \d+\] (?P<text>.*)$"
)


@dataclass(frozen=True)
class FabricLine:
    line: int
    time: str
    level: str
    text: str
    raw: str


def parse_fabric_manager(lines: Sequence[str]) -> list[FabricLine]:
    """Lines that begin a message (payloads that follow are passed over)."""
    found = []
    for number, line in enumerate(lines, start=1):
        if match := _LINE.match(line):
            found.append(FabricLine(number, match["time"], match["level"], match["text"].rstrip(), line.rstrip()))
    return found
