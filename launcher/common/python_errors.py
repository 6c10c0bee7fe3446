"""What a Python process said before it ended: its last traceback, and torchrun's report of failed ranks."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TRACEBACK = "Traceback (most recent call last):"
_ERROR_LINE = re.compile(
    r"^(?:\[rank\d+\]:\s*)?(?P<error>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Timeout)\b.*)$"
)
_RANK_PREFIX = re.compile(r"^\[rank\d+\]:\s?")


@dataclass(frozen=True)
class PythonError:
    """`error` is the last line (`ValueError: …`), `lines` the traceback with it."""

    error: str
    lines: tuple[str, ...]


def last_traceback(text: str) -> PythonError | None:
    """The last traceback of a process' stderr; torch's `[rank3]:` prefixes are dropped. None where there is none."""
    lines = [_RANK_PREFIX.sub("", line) for line in text.splitlines()]
    starts = [index for index, line in enumerate(lines) if line.strip() == _TRACEBACK]
    for start in reversed(starts):
        for end in range(start + 1, len(lines)):
            if lines[end] and not lines[end][0].isspace():
                return PythonError(lines[end], tuple(lines[start : end + 1]))
    return None


_REPORT = re.compile(
    r"rank\s*:\s*(?P<rank>\d+)\s*\(local_rank:\s*\d+\)\s*\n\s*exitcode\s*:\s*(?P<status>-?\d+)\s*\(pid:\s*(?P<pid>\d+)\)"
)


def torchrun_exit_statuses(text: str) -> dict[int, int]:
    """rank -> exit status, from torchrun's report of failed ranks (its own choice of a cause is not used)."""
    return {int(match["rank"]): int(match["status"]) for match in _REPORT.finditer(text)}


_PEER_WORDS = re.compile(
    r"connection (closed by peer|reset by peer|was likely closed|refused)|broken pipe|failed to recv, got 0 bytes"
    r"|recvvalue failed|remote process exited|remote error|ncclremoteerror|socket is not connected|connectionreset"
    r"|closed the connection|store is no longer available|timed out waiting \d+ms for (recv|send) operation"
    r"|watchdog caught collective operation timeout",
    re.IGNORECASE,
)


def is_echo(error: str, exit_status: int | None) -> bool:
    """Whether this failure looks like the echo of another rank's: a closed connection, or a signal from its agent."""
    return exit_status in (-15, -6) or bool(_PEER_WORDS.search(error))
