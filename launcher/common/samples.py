"""nodes/<node_rank>/sample.jsonl: how a node and its ranks stood, once a second, written by the agent for `top`.

A line is one NodeSample. Its ranks are stored by column (`{"rank": [0, 1], "step": [7, 7]}`): a reader of thousands of
ranks fills arrays with it, and a column that nobody knows is left out. The file is bounded: when it has grown to
`LOG_BYTES` its older part goes, so a reader that finds the file shorter than its offset starts again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

LOG_BYTES = 4_000_000

# what a rank's process does; the first word that is true counts
STOPPED = "stopped"  # SIGSTOP or a debugger
GONE = "gone"  # there was a process, and it has ended
WAITING = "disk-sleep"  # uninterruptible: a file system or a driver
RUNNING = "running"
SLEEPING = "sleeping"
STARTING = "starting"  # no process yet


@dataclass(frozen=True)
class RankSample:
    """One rank at one time; None where it could not be known. Times are seconds since the epoch."""

    rank: int
    pid: int | None = None
    state: str = STARTING
    cpu: float | None = None  # cores in use since the last sample
    rss: int | None = None  # bytes
    step: int | None = None
    total: int | None = None
    loss: float | None = None
    step_s: float | None = None
    data_s: float | None = None
    tokens_per_s: float | None = None
    progress_time: float | None = None
    log_bytes: int | None = None
    device_util: float | None = None  # percent
    device_memory: int | None = None  # bytes
    device_memory_total: int | None = None
    temperature: float | None = None  # degrees Celsius
    collective: str | None = None  # in which the rank stands, while it makes no progress


@dataclass(frozen=True)
class NodeSample:
    """One node at one time. `cost` is the share of one core that looking took."""

    time: float
    node_rank: int
    host: str
    attempt: int = 0
    load: float | None = None  # processes that run or want to, one-minute mean
    memory: int | None = None  # bytes in use
    memory_total: int | None = None
    sent: float | None = None  # bytes a second on all networks but loopback
    received: float | None = None
    cost: float | None = None
    ranks: Sequence[RankSample] = ()

    def to_json(self) -> dict[str, Any]:
        document = {name: value for name in _NODE_FIELDS if (value := getattr(self, name)) is not None}
        return {**document, "ranks": columns(self.ranks)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> NodeSample:
        """Raises KeyError or TypeError where the document is not of this form; unknown keys are passed over."""
        known = {name: document[name] for name in _NODE_FIELDS if name in document}
        return cls(**known, ranks=tuple(rows(document["ranks"])))


RANK_FIELDS = tuple(part.name for part in fields(RankSample))
_NODE_FIELDS = tuple(part.name for part in fields(NodeSample) if part.name != "ranks")


def columns(ranks: Sequence[RankSample]) -> dict[str, list[Any]]:
    """The ranks by column, without the columns that hold nothing."""
    table = {name: [_finite(getattr(rank, name)) for rank in ranks] for name in RANK_FIELDS}
    return {name: column for name, column in table.items() if any(value is not None for value in column)}


def rows(table: Mapping[str, Sequence[Any]]) -> list[RankSample]:
    """The inverse of `columns`."""
    names = [name for name in table if name in RANK_FIELDS]
    return [
        RankSample(**{name: value for name, value in zip(names, values, strict=True) if value is not None})
        for values in zip(*(table[name] for name in names), strict=True)
    ]


def encode(sample: NodeSample) -> bytes:
    """One line of sample.jsonl."""
    return json.dumps(sample.to_json(), separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _finite(value: Any) -> Any:
    """Numbers that JSON lacks become text: a loss that is `nan` is worth showing."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
