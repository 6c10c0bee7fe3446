"""How far a rank is: from its progress.jsonl, or from its log lines where the script writes none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from launcher.common.paths import JobPaths
from launcher.common.progress import LogReader, Progress, parse_record

_MOST_BYTES = 262_144  # of a log read in one look; a flood is skipped up to its newest part


class Tail:
    """The new bytes of a growing file, read without keeping it open; a file that shrank is read anew."""

    def __init__(self, path: Path, most: int = _MOST_BYTES) -> None:
        self.path = path
        self._name = str(path)
        self.size = 0
        self._offset = 0
        self._most = most

    def measure(self) -> int:
        """The file's size now; zero while there is no file."""
        with suppress(OSError):
            self.size = os.stat(self._name).st_size  # noqa: PTH116 (a Path costs thousands of looks a second)
        return self.size

    def new(self) -> bytes:
        """The bytes since the last call, at most the newest `most`; none while there is no file."""
        size = self.measure()
        if size == self._offset:
            return b""
        start = max(0 if size < self._offset else self._offset, size - self._most)
        try:
            descriptor = os.open(self._name, os.O_RDONLY)
        except OSError:
            return b""
        try:
            data = os.pread(descriptor, self._most, start)
        finally:
            os.close(descriptor)
        self._offset = start + len(data)
        return data


class RankProgress:
    """The newest progress of one rank of one attempt."""

    def __init__(self, paths: JobPaths, rank: int, attempt: int, clock: Callable[[], float] = time.time) -> None:
        self.latest: Progress | None = None
        self._records = Tail(paths.progress(rank, attempt))
        self._rest = b""
        self._logs = [(Tail(path), LogReader()) for path in (paths.stdout(rank, attempt), paths.stderr(rank, attempt))]
        self._clock = clock

    @property
    def log_bytes(self) -> int:
        return sum(tail.size for tail, _ in self._logs)

    def look(self) -> Progress | None:
        """The newest record after reading what is new. Its `time` is that of the record, or when its line was seen."""
        *lines, self._rest = (self._rest + self._records.new()).split(b"\n")
        record = next((found for line in reversed(lines) if (found := parse_record(line)) is not None), None)
        if record is not None:
            self.latest = record
        self._read_logs(wanted=self._records.size == 0)
        return self.latest

    def _read_logs(self, wanted: bool) -> None:
        for tail, reader in self._logs:
            if not wanted:
                tail.measure()
                continue
            records = reader.feed(tail.new())
            for record in [*records, *([reader.pending] if reader.pending else [])]:
                self.latest = newer(self.latest, record, self._clock())


def newer(known: Progress | None, record: Progress, now: float) -> Progress:
    """What both say: a bar tells the step and the line beside it the loss. The time is when the step was first seen."""
    if known is None:
        return replace(record, time=now)
    same = record.step is not None and record.step == known.step
    return replace(known.merged(record), time=known.time if same else now)
