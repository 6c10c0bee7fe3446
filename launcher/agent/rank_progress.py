"""How far a rank is: from its progress.jsonl, or from its log lines where the script writes none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from launcher.agent.tail import Tail
from launcher.common.paths import JobPaths
from launcher.common.progress import LogReader, Progress, parse_record


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
