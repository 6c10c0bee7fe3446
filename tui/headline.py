"""The line that says what a job is, how large, how old and what is wrong."""

from __future__ import annotations

import time

from rich.text import Text

from tui.snapshot import Snapshot


def ago(seconds: float) -> str:
    """`42 s`, `3 min`, `5 h`, `2 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def headline(snapshot: Snapshot, marks: str) -> Text:
    """Job, state, mesh, size, age and what is wrong."""
    job = snapshot.job
    colours = {"running": "green", "succeeded": "green", "failed": "bold red", "stopped": "yellow"}
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f" {job.name} ", "bold reverse").append(f" {job.state} ", colours.get(job.state, "cyan"))
    mesh = " × ".join(f"{axis}={size}" for axis, size in job.mesh.items() if size > 1)
    text.append(f" {job.world_size} ranks on {len(job.hosts)} hosts" + (f" · {mesh}" if mesh else ""))
    if job.started:
        text.append(f" · {ago((job.ended or snapshot.time) - job.started)}")
    if job.attempt:
        text.append(f" · attempt {job.attempt + 1}", "yellow")
    if snapshot.position is not None:
        now, first, last = snapshot.position
        at = time.strftime("%H:%M:%S", time.localtime(now))
        text.append(f" · replay {at}, {now - first:.0f} of {last - first:.0f} s", "magenta")
    if marks:
        text.append(f" · {marks}", "bold yellow")
    return text
