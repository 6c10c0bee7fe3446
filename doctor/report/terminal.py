"""A verdict for a terminal: root cause first, one screen also for a thousand ranks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from launcher.common.finding import Finding, Verdict
from launcher.common.text import printable

WIDTH = 100
EVIDENCE_SHOWN = 5
FINDINGS_SHOWN = 8
COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}


def render(verdict: Verdict) -> str:
    """The verdict as text, with colours; click takes them out where it echoes to no terminal."""
    lines = list(_headline(verdict))
    for number, finding in enumerate(verdict.findings[:FINDINGS_SHOWN]):
        lines += ["", *_finding(finding, first=number == 0)]
    if rest := len(verdict.findings) - FINDINGS_SHOWN:
        lines += ["", f"… and {rest} more: --json shows all"] if rest > 0 else []
    return "\n".join(lines)


def _headline(verdict: Verdict) -> Iterator[str]:
    import click

    if verdict.answer == "none":
        yield click.style(f"{verdict.question}: looked, and found nothing wrong", fg="green", bold=True)
    elif verdict.answer == "unknown":
        yield click.style(f"{verdict.question}: unknown", fg="yellow", bold=True)
    else:
        yield click.style(f"{verdict.question}: {verdict.answer}", fg="red", bold=True)


def _finding(finding: Finding, first: bool) -> Iterator[str]:
    import click

    title = finding.code if finding.code == "unknown" else f"{finding.code}  {finding.confidence:.0%} sure"
    yield click.style(printable(title), fg=COLOURS[finding.severity], bold=first)
    yield from _wrapped(finding.cause, "  ")
    where = " ".join((*finding.hosts[:6], *finding.coordinates[:6]))
    if where:
        yield from _wrapped(f"where: {where}", "  ")
    for piece in finding.evidence[: EVIDENCE_SHOWN if first else 2]:
        yield from _wrapped(f"{piece.where}: {piece.text}", "    · ", "      ")
    if first:
        yield from (f"    → {printable(text)}" for text in finding.detail.get("decisions", ()))
    if finding.fix:
        yield from _wrapped(f"try: {finding.fix}", "  ", "       ")
    for text in finding.missing[:EVIDENCE_SHOWN]:
        yield from _wrapped(f"missing: {text}", "  ", "    ")


def _wrapped(text: str, indent: str, later: str = "  ") -> list[str]:
    return textwrap.wrap(
        printable(text), WIDTH, initial_indent=indent, subsequent_indent=later, break_on_hyphens=False
    ) or [indent]
