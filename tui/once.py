"""One frame for scripts and for people without a terminal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tui.alarms import AlarmWatch
from tui.feed.source import Source
from tui.screens.job import COLUMNS, coordinate, rank_rows
from tui.snapshot import STATES, Snapshot
from tui.view import headline

_SHOWN = 40  # ranks in the text
_WHOLE = frozenset({"step", "total", "rss", "pid", "log_bytes", "device_memory", "device_memory_total"})


def look(source: Source, patience: float) -> Snapshot:
    """The picture of a job now."""
    try:
        return AlarmWatch(patience)(source.feed.poll())
    finally:
        source.feed.close()


def job_document(snapshot: Snapshot) -> dict[str, Any]:
    """A job of the contract's document; what is not known of a rank is left out."""
    return {
        "job": snapshot.job.job,
        "state": snapshot.job.state,
        "ranks": [rank_document(snapshot, rank) for rank in range(snapshot.world_size)],
        "alarms": [{"kind": alarm.kind, "ranks": list(alarm.ranks), "text": alarm.text} for alarm in snapshot.alarms],
        "lost_hosts": {snapshot.job.hosts[node]: reason for node, reason in snapshot.nodes.lost.items()},
    }


def rank_document(snapshot: Snapshot, rank: int) -> dict[str, Any]:
    values = {name: float(array[rank]) for name, array in snapshot.measures.items()}
    known = {name: int(value) if name in _WHOLE else value for name, value in values.items() if math.isfinite(value)}
    return {
        "rank": rank,
        "host": snapshot.job.host_of(rank),
        "step": None,
        **known,
        "coordinate": coordinate(snapshot.job, rank),
        "state": STATES[int(snapshot.state[rank])],
    }


def text(snapshot: Snapshot) -> str:
    """Head line, alarms, and the ranks, those with an alarm and the slowest first."""
    steps = np.nan_to_num(snapshot.step, nan=-1.0)
    order = sorted(range(snapshot.world_size), key=lambda rank: (rank not in snapshot.alarmed, steps[rank], rank))
    lines = [headline(snapshot, "").plain.strip(), *(f"! {alarm.text}" for alarm in snapshot.alarms)]
    rows = [[column.label for column in COLUMNS], *(list(row.cells) for row in rank_rows(snapshot, order[:_SHOWN]))]
    widths = [max(len(row[place]) for row in rows) for place in range(len(COLUMNS))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if len(order) > _SHOWN:
        lines.append(f"and {len(order) - _SHOWN} more ranks; --json shows all")
    return "\n".join(lines)
