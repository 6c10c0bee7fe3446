"""Log of nv-fabricmanager: its own file, and its lines in the journal, which have no level."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_LINE = re.compile(
    r"^\[(?P<time>[A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d)\] \[(?P<level>\w+)\] \[tid \d+\] (?P<text>.*)$"
)
_JOURNAL = re.compile(r"(?:^(?P<time>[A-Z][a-z]{2} [ \d]\d [\d:]{8}) \S+ |^)nv-fabricmanager\[\d+\]:\s+(?P<text>.*)$")
_WRONG = re.compile(r"\b(?:error|failed|fatal|don't match|doesn't match|unable to|aborted)\b", re.IGNORECASE)


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
        elif match := _JOURNAL.match(line):
            level = "ERROR" if _WRONG.search(match["text"]) else "INFO"
            found.append(FabricLine(number, match["time"] or "", level, match["text"].rstrip(), line.rstrip()))
    return found
