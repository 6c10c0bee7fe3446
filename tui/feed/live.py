"""A job whose directory can be read here: on this machine or on a shared file system."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.jobs.record import ENDED, read_record
from launcher.jobs.store import StoredJob
from tui.feed.events import EventLog
from tui.feed.job import job_info
from tui.feed.recording import Recorder
from tui.feed.samples import node_samples
from tui.feed.table import RankTable
from tui.snapshot import Snapshot

SILENT_S = 6.0  # without a sample for so long, a host counts as lost
_PERIODS = ((256, 0.5), (8192, 1.0), (math.inf, 2.0))  # ranks up to which all nodes are read so often, in seconds


class LiveFeed:
    """Reads the newest line of every node's samples, the record and the events."""

    def __init__(self, job: StoredJob, clock: Callable[[], float] = time.time) -> None:
        record, paths = job.record, job.paths
        self.paths = paths
        self.table = RankTable(job_info(record))
        self.period_s = next(period for most, period in _PERIODS if len(record.ranks) <= most)
        self._clock = clock
        self._record_mark: tuple[int, int] = (0, 0)
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
        for source in self._samples:
            line = source.newest()
            if line:
                with suppress(ValueError):
                    yield json.loads(line)

    def _read_record(self) -> None:
        """The record is replaced as a whole: its inode and time tell a new one."""
        with suppress(OSError):
            found = self.paths.record.stat()
            mark = (found.st_ino, found.st_mtime_ns)
            if mark == self._record_mark:
                return
            record = read_record(self.paths.record)
            self._record_mark = mark
            if [node.host for node in record.nodes] != list(self.table.job.hosts):
                self._close_samples()
                self._samples = node_samples(record, self.paths)
            self.table.reshape(job_info(record))

    def _mark_lost(self) -> None:
        """A host that cannot be reached is lost at any time; one that is silent only while the job goes on."""
        now, ended = self._clock(), self.table.job.state in ENDED
        for node, seen in enumerate(self.table.seen):
            silent = now - (seen if seen == seen else self._opened)
            reason = self._samples[node].lost or ("" if ended else f"no sample for {silent:.0f} s")
            if silent > SILENT_S and reason:
                self.table.lose(node, reason)
