"""Prints the table of states as Markdown, as `docs/workloads.md` shows it: `python -m workloads.common.table`."""

from __future__ import annotations

from workloads.common.states import ROWS, STATES


def placements() -> list[str]:
    """Row by row which state is sharded (S) and which replicated (–)."""
    lines = ["| row | axis | " + " | ".join(STATES) + " |", "|---|---|" + "---|" * len(STATES)]
    for name, row in ROWS.items():
        marks = ("S" if state in row.shards else "–" for state in STATES)
        lines.append(f"| {name} | {row.axis} | " + " | ".join(marks) + " |")
    return lines


def exchanges() -> list[str]:
    """Row by row what is sent, when, how often and how much."""
    lines = ["| row | over | collective | of | when | calls | bytes |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {name} | {exchange.over or row.axis} | {exchange.collective} | {exchange.state} | {exchange.moment} | "
        f"`{exchange.calls}` | `{exchange.bytes}` |"
        for name, row in ROWS.items()
        for exchange in row.exchanges
    ]
    return lines


if __name__ == "__main__":
    print("\n".join([*placements(), "", *exchanges()]))
