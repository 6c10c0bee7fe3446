"""A verdict as one HTML file that needs nothing else: findings, the wait-for graph, how far each group is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from html import escape

from doctor.evidence import EvidenceSet
from doctor.rules.fleet import Fleet, Group, fleet_of
from doctor.rules.waits import WaitGraph, WaitPoint, graph_of
from doctor.text import fold, name_ranks
from launcher.common.finding import Finding, Verdict
from launcher.common.text import printable

ROW, WIDTH = 64, 900
GROUPS_SHOWN, POINTS_SHOWN = 40, 24
STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.4rem}h2{font-size:1.05rem;margin-top:2rem}
section{border-left:4px solid #888;padding:.2rem 1rem;margin:1rem 0}
.error{border-color:#b3261e}.warning{border-color:#b26a00}.info{border-color:#2a6f97}
code{background:#f2f3f5;padding:0 .2em}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{border:1px solid #ccc;padding:.15rem .5rem}
td.behind{background:#fbe3e1;font-weight:600}svg{max-width:100%}svg text{font-size:13px}
@media(prefers-color-scheme:dark){body{color:#e3e6ea;background:#16191d}code{background:#2a2f36}td.behind{background:#5c1f1a}
svg text{fill:#e3e6ea}}
"""


def render(verdict: Verdict, evidence: EvidenceSet) -> str:
    """The whole document."""
    fleet = evidence.once(fleet_of)
    body = [
        f"<h1>{escape(verdict.question)}: {escape(verdict.answer)}</h1>",
        *(_section(finding) for finding in verdict.findings),
        *_graph(evidence.once(graph_of)),
        *_matrix(fleet),
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(verdict.answer)}</title><style>{STYLE}</style><body>" + "\n".join(body) + "</body></html>\n"
    )


def _section(finding: Finding) -> str:
    pieces = "".join(
        f"<li><code>{_text(piece.where)}</code> {_text(piece.text)}</li>" for piece in finding.evidence
    ) + "".join(f"<li>missing: {_text(text)}</li>" for text in finding.missing)
    steps = "".join(f"<li>{_text(step)}</li>" for step in finding.detail.get("decisions", ()))
    return (
        f'<section class="{finding.severity}"><h2>{_text(finding.code)} · {finding.confidence:.0%} sure</h2>'
        f"<p>{_text(finding.cause)}</p>"
        + (f"<p><b>Try:</b> {_text(finding.fix)}</p>" if finding.fix else "")
        + (f"<ol>{steps}</ol>" if steps else "")
        + f"<ul>{pieces}</ul></section>"
    )


def _graph(graph: WaitGraph) -> Iterator[str]:
    """Who waits (left) in which call (middle) for whom (right); a row for each stuck call."""
    points = graph.points[:POINTS_SHOWN]
    if not points:
        return
    yield "<h2>Who waits for whom</h2>"
    yield f'<svg viewBox="0 0 {WIDTH} {ROW * len(points)}" role="img" aria-label="wait-for graph">'
    yield (
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#888"/></marker></defs>'
    )
    for row, point in enumerate(points):
        yield from _row(point, graph, row * ROW + ROW // 2)
    yield "</svg>"


def _row(point: WaitPoint, graph: WaitGraph, y: int) -> Iterator[str]:
    waiting = name_ranks(sorted(graph.waiters(point)))
    absent = name_ranks(sorted(point.absent)) if point.absent else "nobody is missing"
    title = f"#{point.seq} {point.op} of {point.group.kind}"
    for x, width, text, colour in (
        (10, 230, waiting, "#2a6f97"),
        (320, 260, title, "#888888"),
        (660, 230, absent, "#b3261e" if point.absent else "#888888"),
    ):
        yield f'<rect x="{x}" y="{y - 20}" width="{width}" height="40" rx="6" fill="none" stroke="{colour}"/>'
        yield f'<text x="{x + 10}" y="{y + 5}">{_text(text[:34])}<title>{_text(text)}</title></text>'
    for start, end in ((240, 318), (580, 658)):
        yield f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" stroke="#888" marker-end="url(#a)"/>'


def _matrix(fleet: Fleet) -> Iterator[str]:
    """For each group the numbers that its members have reached, equal ones folded; those behind are marked."""
    if not fleet.groups:
        return
    yield "<h2>How far the groups are</h2><table><tr><th>group</th><th>issued</th><th>ended</th><th>ranks</th></tr>"
    for group in fleet.groups[:GROUPS_SHOWN]:
        yield from _rows(group)
    yield "</table>"
    if len(fleet.groups) > GROUPS_SHOWN:
        yield f"<p>and {len(fleet.groups) - GROUPS_SHOWN} more groups</p>"


def _rows(group: Group) -> Iterator[str]:
    reached: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for rank, member in group.seen.items():
        reached[member.view.enqueued, member.view.completed].append(rank)
    most = max((enqueued for enqueued, _ in reached), default=-1)
    for (enqueued, completed), ranks in sorted(reached.items()):
        mark = ' class="behind"' if enqueued < most else ""
        yield (
            f"<tr><td>{_text(group.label)}</td><td{mark}>{enqueued}</td><td>{completed}</td><td>{fold(ranks)}</td></tr>"
        )


def _text(text: str) -> str:
    return escape(printable(text))
