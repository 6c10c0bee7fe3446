"""What the screens draw: one frozen picture of a job, arrays indexed by rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from launcher.spec import MeshSpec

Floats = NDArray[np.float64]
Index = NDArray[np.int64]

STATES = ("unknown", "starting", "running", "sleeping", "disk-sleep", "stopped", "gone")
STATE_CODES = {name: code for code, name in enumerate(STATES)}
STATE_BADNESS = np.array([4, 1, 0, 0, 3, 5, 6])  # by code: which of several the eye must see
LETTERS = "?+rsDTX"  # by code, for terminals without colour

MEASURES = (
    "step", "total", "loss", "step_s", "data_s", "tokens_per_s", "progress_time", "cpu", "rss", "log_bytes",
    "device_util", "device_memory", "device_memory_total", "temperature", "pid",
)  # fmt: skip


@dataclass(frozen=True)
class JobInfo:
    """What does not change from second to second. `mesh` is axis → degree, outermost first, without `ep`."""

    job: str
    name: str
    state: str
    cluster: str = ""
    kind: str = "local"
    mesh: Mapping[str, int] = field(default_factory=dict)
    hosts: Sequence[str] = ()  # by node_rank
    node_of: Sequence[int] = ()  # by rank
    local_rank: Sequence[int] = ()  # by rank
    attempt: int = 0
    started: float | None = None
    ended: float | None = None
    reason: str = ""
    script: str = ""
    devices: Sequence[str | None] = ()  # UUID by rank

    @property
    def world_size(self) -> int:
        return len(self.node_of)

    @cached_property
    def nodes(self) -> Index:
        """The node of each rank."""
        return np.asarray(self.node_of, dtype=np.int64)

    @cached_property
    def layout(self) -> MeshSpec | None:
        """The mesh, where it makes up the world."""
        fits = self.mesh and math.prod(self.mesh.values()) == self.world_size
        return MeshSpec(self.mesh) if fits else None

    def ranks_on(self, *nodes: int) -> list[int]:
        return [int(rank) for rank in np.flatnonzero(np.isin(self.nodes, nodes))]

    def host_of(self, rank: int) -> str:
        return self.hosts[self.node_of[rank]]


@dataclass(frozen=True)
class Nodes:
    """By node_rank. `seen` is the time of the newest sample (nan: none yet); `lost` says why a host does not answer."""

    seen: Floats
    load: Floats
    memory: Floats
    memory_total: Floats
    sent: Floats
    received: Floats
    cost: Floats
    lost: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """The job over time: one point a second at most, the oldest thinned out. `step` is that of the slowest rank."""

    time: Floats
    step: Floats
    loss: Floats
    tokens_per_s: Floats
    step_s: Floats


@dataclass(frozen=True)
class Event:
    """A line of the event log."""

    time: float
    text: str


AlarmKind = Literal["no_progress", "behind", "stopped", "gone", "lost"]


@dataclass(frozen=True)
class Alarm:
    """Something that a person should look at; `ranks` are those that stand out, `since` seconds since the epoch."""

    kind: AlarmKind
    ranks: Sequence[int]
    text: str
    since: float


@dataclass(frozen=True)
class Snapshot:
    """A job at `time`. Arrays of `measures` have one element a rank, nan where unknown; `state` holds codes of STATES.

    `position` of a recording is (now, first, last) in seconds since the epoch; None for a live feed.
    """

    time: float
    job: JobInfo
    state: NDArray[np.int8]
    measures: Mapping[str, Floats]
    nodes: Nodes
    history: History
    events: Sequence[Event] = ()
    alarms: Sequence[Alarm] = ()
    collectives: Mapping[int, str] = field(default_factory=dict)  # in which a rank stands that makes no progress
    position: tuple[float, float, float] | None = None

    def __getattr__(self, name: str) -> Floats:
        """The array of a measure: `snapshot.step_s`."""
        try:
            return self.measures[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def world_size(self) -> int:
        return len(self.state)

    @cached_property
    def alarmed(self) -> frozenset[int]:
        return frozenset(rank for alarm in self.alarms for rank in alarm.ranks)
