"""What the doctor and preflight say: evidence, findings and verdicts, and their JSON form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
QUOTE_LIMIT = 300  # characters of one quoted piece of evidence


@dataclass(frozen=True)
class Evidence:
    """One fact with its place: file and line, rank and stack frame, or record of a dump."""

    kind: str
    where: str
    text: str

    def __post_init__(self) -> None:
        if len(self.text) > QUOTE_LIMIT:
            object.__setattr__(self, "text", self.text[: QUOTE_LIMIT - 1] + "…")


@dataclass(frozen=True)
class Finding:
    """One statement about a job or host. `cause` and `fix` are sentences for a person."""

    code: str
    severity: Severity
    cause: str
    fix: str = ""
    confidence: float = 1.0
    ranks: Sequence[int] = ()
    hosts: Sequence[str] = ()
    coordinates: Sequence[str] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)
    evidence: Sequence[Evidence] = ()
    missing: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Verdict:
    """The ordered findings of one question; the first is the root cause."""

    question: str
    findings: Sequence[Finding] = ()

    @property
    def answer(self) -> str:
        """Code of the first finding of severity warning or worse; else `unknown` if one says so, else `none`."""
        for finding in self.findings:
            if finding.severity != "info":
                return finding.code
        return "unknown" if any(finding.code == "unknown" for finding in self.findings) else "none"

    @property
    def exit_status(self) -> int:
        return {"none": 0, "unknown": 3}.get(self.answer, 1)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "question": self.question,
            "answer": self.answer,
            "findings": [finding.to_json() for finding in self.findings],
        }


def unknown(
    cause: str, missing: Iterable[str] = (), evidence: Iterable[Evidence] = (), hosts: Sequence[str] = ()
) -> Finding:
    """The one finding that a question gets whose evidence did not suffice."""
    return Finding("unknown", "info", cause, hosts=hosts, missing=tuple(missing), evidence=tuple(evidence))
