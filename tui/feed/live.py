"""A job whose directory can be read here: on this machine or on a shared file system."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from launcher.jobs.record import ENDED, read_record
from launcher.jobs.store import StoredJob
from tui.feed.events import EventLog
from tui.feed.job import job_info
from tui.feed.recording import Recorder
from tui.feed.samples import node_samples
from tui.feed.table import RankTable
from tui.snapshot import Snapshot

SILENT_S = 6.0  # without a sample for so long, a host counts as lost
_TURNS = ((256, 1), (8192, 2), (math.inf, 3))  # ranks up to which every n-th node is read in one poll


class LiveFeed:
    """Reads the newest line of every node's samples, the record and the events.

    Of a large job each poll reads some of the nodes in turn: every frame is as cheap as the last and shows news.
    """

    period_s = 0.5

    def __init__(self, job: StoredJob, clock: Callable[[], float] = time.time) -> None:
        record, paths = job.record, job.paths
        self.paths = paths
        self.table = RankTable(job_info(record))
        self._turns = next(turns for most, turns in _TURNS if len(record.ranks) <= most)
        self._turn: int | None = None  # the first poll reads all nodes
        self._clock = clock
        self._record = record
        self._samples = node_samples(record, paths)
        self._events = EventLog(paths.events)
        self._opened = clock()
        self.recorder: Recorder | None = None

    def record(self, path: Path) -> None:
        """Write what comes from now on to `path` too. Raises OSError."""
        self.recorder = Recorder(path, self.table.job)

    def stop_recording(self) -> None:
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            recorder.close()

    def poll(self) -> Snapshot:
        self._read_record()
        samples, events = list(self._new_samples()), self._events.new()
        self.table.apply(samples, self._clock())
        self.table.note(*events)
        if self.recorder is not None:
            self.recorder.take(self.table.job, samples, events)
        self._mark_lost()
        self.table.extend_history()
        return self.table.snapshot(self._clock())

    def seek(self, seconds: float) -> None:
        """A live job cannot be moved."""

    def close(self) -> None:
        self.stop_recording()
        self._close_samples()

    def _close_samples(self) -> None:
        for source in self._samples:
            source.close()

    def _new_samples(self) -> Iterator[dict[str, Any]]:
        due = self._samples if self._turn is None else self._samples[self._turn :: self._turns]
        self._turn = 0 if self._turn is None else (self._turn + 1) % self._turns
        for source in due:
            line = source.newest()
            if line:
                with suppress(ValueError):
                    yield json.loads(line)

    def _read_record(self) -> None:
        with suppress(OSError):
            record = read_record(self.paths.record)
            if record is self._record:
                return
            self._record = record
            if [node.host for node in record.nodes] != list(self.table.job.hosts):
                self._close_samples()
                self._samples = node_samples(record, self.paths)
            self.table.reshape(job_info(record))

    def _mark_lost(self) -> None:
        """A host that cannot be reached is lost at any time; one that is silent only while the job goes on."""
        ended = self.table.job.state in ENDED
        silent = self._clock() - np.where(np.isnan(self.table.seen), self._opened, self.table.seen)
        reasons = {
            int(node): self._samples[node].lost or ("" if ended else f"no sample for {silent[node]:.0f} s")
            for node in np.flatnonzero(silent > SILENT_S)
        }
        self.table.lose({node: reason for node, reason in reasons.items() if reason})
