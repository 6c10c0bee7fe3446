"""Recordings: what was watched live, stepped through later.

A recording is gzipped JSON lines: first `{"schema": 1, "job": {…}}`, then `{"time": t, "job": {…}}` where the job
changed, `{"time": t, "event": "…"}`, and node samples as they came (`{"time": t, "sample": {…}}`).
"""

from __future__ import annotations

import gzip
import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

from launcher.common.paths import JobPaths
from launcher.errors import InputError
from launcher.jobs.record import read_record
from tui.feed.events import EventLog
from tui.feed.job import job_info
from tui.feed.table import RankTable
from tui.snapshot import Event, JobInfo, Snapshot

_RANKS_A_SECOND = 2048  # a larger job is recorded less often, so that an hour stays in the hundreds of megabytes
_FLUSH_S = 2.0


class Recorder:
    """Writes what a feed takes in; the file is flushed every few seconds."""

    def __init__(self, path: Path, job: JobInfo) -> None:
        self._file: TextIO = gzip.open(path, "wt", compresslevel=3)  # noqa: SIM115 (closed in close)
        self._spacing = max(1.0, job.world_size / _RANKS_A_SECOND)
        self._last: dict[int, float] = {}
        self._job = job
        self._flushed = time.monotonic()
        self._write({"schema": 1, "job": asdict(job)})

    def take(self, job: JobInfo, samples: Sequence[Mapping[str, Any]], events: Sequence[Event]) -> None:
        """Write what a feed has taken in."""
        for sample in samples:
            node, now = sample.get("node_rank", -1), sample.get("time", 0.0)
            if now - self._last.get(node, 0.0) >= self._spacing * 0.9:
                self._last[node] = now
                self._write({"time": now, "sample": sample})
        if job != self._job:
            self._job = job
            self._write({"time": max(self._last.values(), default=0.0), "job": asdict(job)})
        for event in events:
            self._write({"time": event.time, "event": event.text})

    def close(self) -> None:
        self._file.close()

    def _write(self, document: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(document, separators=(",", ":"), default=str) + "\n")
        if time.monotonic() - self._flushed > _FLUSH_S:
            self._flushed = time.monotonic()
            self._file.flush()


class Replay:
    """Timed documents played at the pace of the clock; the base of recordings and of the samples of an ended job."""

    period_s = 0.5

    def __init__(self, job: JobInfo, documents: list[dict[str, Any]], clock: Callable[[], float] = time.time) -> None:
        self._first_job = job
        self._documents = sorted(documents, key=lambda document: float(document["time"]))
        self._times = [float(document["time"]) for document in self._documents]
        self._clock = clock
        self._table = RankTable(job)
        self._done = 0
        self._began = clock()
        self._at = self._times[0] if self._times else 0.0

    @property
    def span(self) -> tuple[float, float]:
        """First and last time."""
        return (self._times[0], self._times[-1]) if self._times else (0.0, 0.0)

    def poll(self) -> Snapshot:
        now = self._now()
        for document in self._documents[self._done : bisect_right(self._times, now)]:
            self._take(document)
            self._done += 1
        self._table.extend_history()
        return replace(self._table.snapshot(now), position=(now, *self.span))

    def seek(self, seconds: float) -> None:
        """Move; going back plays all from the start again, up to there."""
        first, last = self.span
        at = max(first, min(last, self._now() + seconds))
        if at < self._now():
            self._table = RankTable(self._first_job)
            self._done = 0
        self._at, self._began = at, self._clock()
        for document in self._documents[self._done : bisect_right(self._times, at)]:
            self._take(document)
            self._table.extend_history()
            self._done += 1

    def close(self) -> None:
        """Nothing is held open."""

    def _now(self) -> float:
        return min(self._at + self._clock() - self._began, self.span[1])

    def _take(self, document: Mapping[str, Any]) -> None:
        if "sample" in document:
            self._table.apply([document["sample"]])
        elif "job" in document:
            self._table.reshape(JobInfo(**document["job"]))
        elif "event" in document:
            self._table.note(Event(float(document["time"]), str(document["event"])))


class RecordingFeed(Replay):
    """Plays a file of `--record`; one that was cut off plays up to there."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        documents = list(_documents(path))
        try:
            job = JobInfo(**documents[0]["job"])
        except (IndexError, KeyError, TypeError) as error:
            raise InputError(
                "not a recording of dlaunch top", where=str(path), help="dlaunch top --record F"
            ) from error
        timed = [document for document in documents[1:] if isinstance(document.get("time"), int | float)]
        super().__init__(job, timed, clock)


class SamplesFeed(Replay):
    """Plays the samples that a job left in its directory; begins at the end, where the answer is."""

    def __init__(self, paths: JobPaths, clock: Callable[[], float] = time.time) -> None:
        record = read_record(paths.record)
        samples = [sample for node in range(len(record.nodes)) for sample in _samples(paths.samples(node))]
        events = [{"time": event.time, "event": event.text} for event in EventLog(paths.events).new()]
        documents = [{"time": sample["time"], "sample": sample} for sample in samples]
        self.attempt = record.attempt
        super().__init__(job_info(record), [*documents, *events], clock)
        self.seek(self.span[1] - self.span[0])


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    with suppress(EOFError, OSError, UnicodeDecodeError), gzip.open(path, "rt", errors="replace") as file:
        for line in file:
            with suppress(ValueError):
                document = json.loads(line)
                if isinstance(document, dict):
                    yield document


def _samples(path: Path) -> Iterator[dict[str, Any]]:
    with suppress(OSError):
        for line in path.read_bytes().splitlines():
            with suppress(ValueError):
                document = json.loads(line)
                if isinstance(document, dict) and isinstance(document.get("time"), int | float):
                    yield document
