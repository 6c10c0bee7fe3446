"""One frame for scripts and for people without a terminal."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from tui.alarms import AlarmWatch
from tui.feed.live import SILENT_S
from tui.feed.source import Source
from tui.headline import headline
from tui.rows import COLUMNS, coordinate, rank_rows
from tui.snapshot import STATES, Snapshot

_FIRST_SAMPLE_S = SILENT_S + 1.0  # a host that has sent none by then is told as lost
_LOOK_S = 0.1
_SHOWN = 40  # ranks in the text
_WHOLE = frozenset({"step", "total", "rss", "pid", "log_bytes", "device_memory", "device_memory_total"})


def look(source: Source, patience: float) -> Snapshot:
    """The picture of a job now. Hosts that are reached over SSH get a few seconds to send their first sample."""
    deadline = time.monotonic() + _FIRST_SAMPLE_S
    try:
        while (snapshot := source.feed.poll()).job.kind == "ssh" and _waits(snapshot) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        return AlarmWatch(patience)(snapshot)
    finally:
        source.feed.close()


def _waits(snapshot: Snapshot) -> bool:
    """Whether a host has neither sent a sample nor failed."""
    silent = np.flatnonzero(np.isnan(snapshot.nodes.seen))
    return any(int(node) not in snapshot.nodes.lost for node in silent)


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
        **({"collective": snapshot.collectives[rank]} if rank in snapshot.collectives else {}),
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
