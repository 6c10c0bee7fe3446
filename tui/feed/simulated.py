"""A job that exists in memory only, for tests and benchmarks: any size, any trouble, its own clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import numpy as np

from tui.feed.table import RankTable
from tui.snapshot import STATE_CODES, Event, JobInfo, Snapshot

_STEP_S = 0.8
_START = 1_700_000_000.0


def simulated_job(mesh: Mapping[str, int], per_host: int = 8) -> JobInfo:
    """A running job whose ranks fill hosts `n0001`, `n0002`, … in order."""
    size = math.prod(mesh.values())
    hosts = -(-size // per_host)
    digits = len(str(hosts))
    return JobInfo(
        job="sim-261129-120000-0000",
        name="sim",
        state="running",
        cluster="simulated",
        mesh=dict(mesh),
        hosts=[f"n{number + 1:0{digits}d}" for number in range(hosts)],
        node_of=[rank // per_host for rank in range(size)],
        local_rank=[rank % per_host for rank in range(size)],
        started=_START,
        script="train.py",
        devices=[None] * size,
    )


class SimulatedFeed:
    """Every rank makes a step in about 0.8 s. `slow` maps ranks to a factor, `stopped` ranks stand still."""

    period_s = 0.5

    def __init__(
        self,
        job: JobInfo,
        clock: Callable[[], float] = time.time,
        slow: Mapping[int, float] | None = None,
        seed: int = 0,
    ) -> None:
        self.table = RankTable(job)
        self.stopped: set[int] = set()
        self._clock = clock
        self._random = np.random.default_rng(seed)
        self._began = clock()
        self._pace = np.ones(job.world_size)
        for rank, factor in (slow or {}).items():
            self._pace[rank] = factor
        self._frozen = np.full(job.world_size, np.nan)
        self.table.note(Event(self._began, "started 1 attempt"))

    def poll(self) -> Snapshot:
        now = self._clock()
        size = self.table.job.world_size
        halted = np.zeros(size, dtype=bool)
        halted[list(self.stopped)] = True
        self._frozen = np.where(halted, np.where(np.isnan(self._frozen), now, self._frozen), np.nan)
        until = np.where(halted, self._frozen, now)
        step = np.floor((until - self._began) / (_STEP_S * self._pace))
        noise = 1 + 0.03 * self._random.standard_normal(size)
        state = np.where(halted, STATE_CODES["stopped"], STATE_CODES["running"]).astype(np.int8)
        self.table.fill(now, state, self._measures(step, noise, until))
        self.table.extend_history()
        return self.table.snapshot(now)

    def _measures(self, step: np.ndarray, noise: np.ndarray, until: np.ndarray) -> dict[str, np.ndarray]:
        step_s = _STEP_S * self._pace * noise
        return {
            "step": step,
            "total": np.full(len(step), 100_000.0),
            "loss": 2 + 9 / np.sqrt(step + 1) + 0.02 * noise,
            "step_s": step_s,
            "data_s": 0.05 * step_s * noise,
            "tokens_per_s": 8192 / step_s,
            "progress_time": until - (until - self._began) % (_STEP_S * self._pace),
            "cpu": noise,
            "rss": 4e9 * noise,
            "device_util": np.clip(93 * noise, 0, 100),
            "device_memory": 60e9 * noise,
            "device_memory_total": np.full(len(step), 80e9),
            "temperature": 62 * noise,
            "pid": np.arange(len(step)) + 1000.0,
            "log_bytes": step * 120,
        }

    def seek(self, seconds: float) -> None:
        """A simulated job goes on as it does."""

    def close(self) -> None:
        """Nothing is held."""
