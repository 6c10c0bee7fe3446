"""The form of what a kind of log line means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launcher.common.finding import Severity


@dataclass(frozen=True)
class Meaning:
    code: str
    cause: str
    fix: str
    by: Sequence[str] = ()
    severity: Severity = "error"
    confidence: float = 0.9
