"""Prints the tables of `docs/workloads.md`, of states and of faults: `python -m workloads.common.table`."""

from __future__ import annotations

from workloads.common.faults import COMMON, KINDS, WORKLOADS
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


def faults() -> list[str]:
    """Each kind of fault, its parameters beside rank and step, and where it makes sense."""
    lines = ["| fault | what goes wrong | in | on gloo, where not as on NCCL |", "|---|---|---|---|"]
    for name, kind in KINDS.items():
        settings = ",".join(f"{key}={value}" for key, value in kind.defaults.items() if value != COMMON.get(key))
        places = "all" if kind.workloads == WORKLOADS else ", ".join(kind.workloads)
        shown = kind.on_gloo or ("" if "gloo" in kind.backends else "refused")
        lines.append(f"| `{name}{settings and ':'}{settings}` | {kind.text} | {places} | {shown} |")
    return lines


if __name__ == "__main__":
    print("\n".join([*placements(), "", *exchanges(), "", *faults()]))
