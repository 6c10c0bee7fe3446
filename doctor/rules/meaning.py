"""The form of what a kind of log or kernel line means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launcher.common.finding import Severity


@dataclass(frozen=True)
class Meaning:
    """The finding of a kind's lines. `cause` may use the line's fields as `{…}`, of log lines also `{who}` wrote them.

    Lines that say the same in the fields of `by` are one finding.
    """

    code: str
    cause: str
    fix: str
    by: Sequence[str] = ()
    severity: Severity = "error"
    confidence: float = 0.9
