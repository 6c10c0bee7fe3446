"""The ranks that a filter means."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from tui.snapshot import STATE_CODES, Snapshot

_COORDINATE = re.compile(r"([a-z_]+?)(\d+)")


def matching(snapshot: Snapshot, text: str) -> NDArray[np.bool_]:
    """By rank: exactly that rank, state or coordinate (`tp3`), or `text` is a part of its host's name."""
    job = snapshot.job
    found = np.isin(job.nodes, [node for node, host in enumerate(job.hosts) if text in host])
    found |= snapshot.state == STATE_CODES.get(text, -1)
    if text.isascii() and text.isdigit() and int(text) < len(found):
        found[int(text)] = True
    at = _COORDINATE.fullmatch(text)
    if at and job.layout is not None and at[1] in job.layout.axes:
        positions = np.unravel_index(np.arange(len(found)), job.layout.shape)
        found |= positions[job.layout.axes.index(at[1])] == int(at[2])
    return found
