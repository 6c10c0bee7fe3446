"""A verdict as Markdown, to paste into an issue."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.common.finding import Finding, Verdict
from launcher.common.text import printable

EVIDENCE_SHOWN = 8


def render(verdict: Verdict) -> str:
    """Headline, then one section for each finding."""
    lines = [f"### {verdict.question}: `{verdict.answer}`"]
    for finding in verdict.findings:
        lines += ["", *_section(finding)]
    return "\n".join(lines) + "\n"


def _section(finding: Finding) -> Iterator[str]:
    yield f"**`{finding.code}`** ({finding.severity}, {finding.confidence:.0%} sure)"
    yield ""
    yield _safe(finding.cause)
    if finding.fix:
        yield f"\n*Try:* {_safe(finding.fix)}"
    if finding.evidence:
        yield ""
        for piece in finding.evidence[:EVIDENCE_SHOWN]:
            yield f"- `{_code(piece.where)}`: `{_code(piece.text)}`"
    for text in finding.missing:
        yield f"- missing: {_safe(text)}"


def _safe(text: str) -> str:
    """Text that Markdown shows as it is."""
    for sign in "\\`*_<>[]#|":
        text = text.replace(sign, f"\\{sign}")
    return printable(text).replace("\n", " ")


def _code(text: str) -> str:
    return printable(text).replace("`", "'").replace("\n", " ")
