"""The latest values of every rank, filled from node samples as they come. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from launcher.common.text import printable
from tui.metrics import Codes
from tui.snapshot import MEASURES, STATE_CODES, Event, Floats, History, Index, JobInfo, Nodes, Snapshot

HISTORY_POINTS = 600
_NODE_MEASURES = ("load", "memory", "memory_total", "sent", "received", "cost")
_HISTORY = ("time", "step", "loss", "tokens_per_s", "step_s")
_EVENTS = 200
_CLOCKS_AGREE_S = 5.0
_RUNNING = STATE_CODES["running"]


class RankTable:
    """Latest-value arrays of one job; `apply` is the only writer, `snapshot` copies."""

    def __init__(self, job: JobInfo) -> None:
        self.job = job
        self._state = np.zeros(job.world_size, dtype=np.int8)
        self._measures = {name: np.full(job.world_size, np.nan) for name in MEASURES}
        nodes = len(job.hosts)
        self.seen = np.full(nodes, np.nan)
        self._nodes = {name: np.full(nodes, np.nan) for name in _NODE_MEASURES}
        self._told = np.full(nodes, np.nan)  # time of the newest sample by the host's own clock
        self._ahead = np.zeros(nodes)  # seconds by which that clock is ahead of ours
        self._lost: dict[int, str] = {}
        self._collectives: dict[int, str] = {}
        self._history: dict[str, list[float]] = {name: [] for name in _HISTORY}
        self._next_point = -np.inf
        self._spacing = 1.0
        self.events: list[Event] = []
        self.newest = 0.0

    def reshape(self, job: JobInfo) -> None:
        """Take a new record of the job. A new attempt starts with what is known of no rank."""
        if job.world_size == self.job.world_size and job.attempt == self.job.attempt and job.hosts == self.job.hosts:
            self.job = job
            return
        history, events, newest = self._history, self.events, self.newest
        self.__init__(job)  # type: ignore[misc]
        self._history, self.events, self.newest = history, events, newest

    def apply(self, samples: Sequence[Mapping[str, Any]], now: float | None = None) -> None:
        """Take in node samples, lines of sample.jsonl; those of another attempt or form are passed over.

        `now` is our time where they have just come: a host's clock may be off. All at once, because an array
        operation a node would cost more than reading the samples.
        """
        good = [sample for sample in samples if self._is_ours(sample)]
        if not good:
            return
        places = np.array([rank for sample in good for rank in sample["ranks"]["rank"]])
        for name, values in self._measures.items():
            values[places] = _numbers(_joined(good, name))
        self._state[places] = [STATE_CODES.get(state, _RUNNING) for state in _joined(good, "state")]
        self._set_collectives(good)
        nodes = np.array([sample["node_rank"] for sample in good])
        for name, values in self._nodes.items():
            values[nodes] = _numbers([sample.get(name) for sample in good])
        self._set_clocks(nodes, np.array([float(sample["time"]) for sample in good]), now)
        sizes = [len(sample["ranks"]["rank"]) for sample in good]
        self._measures["progress_time"][places] -= np.repeat(self._ahead[nodes], sizes)

    def _set_collectives(self, samples: Sequence[Mapping[str, Any]]) -> None:
        """While all ranks move no sample has the column, and there is nothing to forget."""
        if self._collectives or any("collective" in sample["ranks"] for sample in samples):
            for rank, text in zip(_joined(samples, "rank"), _joined(samples, "collective"), strict=True):
                self._collectives.pop(rank, None)
                if isinstance(text, str):
                    self._collectives[rank] = printable(text)

    def _set_clocks(self, nodes: Index, told: Floats, now: float | None) -> None:
        """Note when each node was seen, by our clock."""
        if now is not None:  # a second sample proves that the first was not merely old
            off = (told > self._told[nodes]) & (np.abs(now - told) > _CLOCKS_AGREE_S)
            self._ahead[nodes[off]] = told[off] - now
        self._told[nodes] = told
        self.seen[nodes] = told - self._ahead[nodes]
        self.newest = max(self.newest, float(self.seen[nodes].max()))
        for node in self._lost.keys() & set(nodes.tolist()):
            del self._lost[node]

    def _is_ours(self, sample: Mapping[str, Any]) -> bool:
        node, ranks = sample.get("node_rank"), sample.get("ranks")
        if not isinstance(node, int) or not 0 <= node < len(self.seen) or not isinstance(ranks, dict):
            return False
        if sample.get("attempt", 0) != self.job.attempt or not isinstance(sample.get("time"), int | float):
            return False
        return _is_table(ranks, self.job.world_size)

    def fill(self, time: float, state: Codes, measures: Mapping[str, Floats]) -> None:
        """Take in all ranks at once."""
        self._state[:] = state
        for name, values in measures.items():
            self._measures[name][:] = values
        self.seen[:] = self.newest = time

    def lose(self, reasons: Mapping[int, str]) -> None:
        """Nodes that do not answer, and why: their ranks are unknown from now on."""
        self._lost |= {node: printable(reason).replace("\n", " ") for node, reason in reasons.items()}
        self._state[np.isin(self.job.nodes, list(reasons))] = STATE_CODES["unknown"]

    def note(self, *events: Event) -> None:
        self.events = [*self.events, *events][-_EVENTS:]

    def extend_history(self) -> None:
        """Add a point if a second (more in long jobs) has gone by since the last."""
        if self.newest < self._next_point or not self.job.world_size:
            return
        if len(self._history["time"]) >= HISTORY_POINTS:
            self._history = {name: values[::2] for name, values in self._history.items()}
            self._spacing *= 2
        point = {
            "time": self.newest,
            "step": _ignoring_nan(np.min, self._measures["step"]),
            "loss": _ignoring_nan(np.mean, self._measures["loss"]),
            "tokens_per_s": _ignoring_nan(np.sum, self._measures["tokens_per_s"]),
            "step_s": _ignoring_nan(np.median, self._measures["step_s"]),
        }
        for name, value in point.items():
            self._history[name].append(value)
        self._next_point = self.newest + self._spacing

    def snapshot(self, time: float) -> Snapshot:
        nodes: dict[str, Any] = {name: array.copy() for name, array in self._nodes.items()}
        return Snapshot(
            time=time,
            job=self.job,
            state=self._state.copy(),
            measures={name: array.copy() for name, array in self._measures.items()},
            nodes=Nodes(seen=self.seen.copy(), lost=dict(self._lost), **nodes),
            history=History(**{name: np.array(values) for name, values in self._history.items()}),
            events=tuple(self.events),
            collectives=dict(self._collectives),
        )


def _is_table(ranks: Mapping[str, Any], world_size: int) -> bool:
    """Whether it is columns of one length, the ranks among them. Loops in C: this runs for thousands of hosts."""
    places = ranks.get("rank") or []
    if set(map(type, ranks.values())) != {list} or set(map(type, places)) != {int}:
        return False
    return set(map(len, ranks.values())) == {len(places)} and min(places) >= 0 and max(places) < world_size


def _joined(samples: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """One column over all samples; a sample without it gives nothing known for each of its ranks."""
    values: list[Any] = []
    for sample in samples:
        ranks = sample["ranks"]
        values += ranks[name] if name in ranks else [None] * len(ranks["rank"])
    return values


def _numbers(column: list[Any]) -> Floats:
    """Numbers, null and the texts `nan` and `inf` as an array."""
    try:
        return np.array(column, dtype=np.float64)
    except (TypeError, ValueError):
        return np.array([_number(value) for value in column], dtype=np.float64)


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")


def _ignoring_nan(reduce: Any, values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(reduce(known)) if len(known) else float("nan")
