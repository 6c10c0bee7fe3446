"""What node tools printed, by kind, and the finding that it tells. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from doctor.evidence import EvidenceSet
from doctor.evidence.system import NodeReport, ReportKind
from launcher.common.finding import Evidence, Finding, Severity

T = TypeVar("T")


def reports(evidence: EvidenceSet, kind: ReportKind, of: type[T]) -> Iterator[tuple[str, T]]:
    """(file, value) of the reports of a kind."""
    for report in evidence.of(NodeReport):
        if report.kind == kind and isinstance(report.value, of):
            yield report.where, report.value


def lists(evidence: EvidenceSet, kind: ReportKind, of: type[T]) -> Iterator[tuple[str, Sequence[T]]]:
    """The same for reports that are lists of records."""
    for where, value in reports(evidence, kind, list):
        yield where, [one for one in value if isinstance(one, of)]


def printed(
    where: str,
    quote: str,
    code: str,
    cause: str,
    fix: str,
    confidence: float,
    severity: Severity = "error",
    **detail: Any,
) -> Finding:
    """A finding that a tool's output tells; `quote` of it is the evidence."""
    return Finding(
        code, severity, cause, fix, confidence, detail=detail, evidence=(Evidence("node_report", where, quote),)
    )
