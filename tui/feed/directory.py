"""A directory of log files from any job: every file is a rank, read for the steps that it tells of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from launcher.agent.rank_progress import newer
from launcher.agent.tail import Tail
from launcher.common.progress import LogReader, Progress
from tui.feed.table import RankTable
from tui.snapshot import STATE_CODES, JobInfo, Snapshot

_LOGS = ("*.log", "*.txt", "*.out", "*.err", "stdout", "*stdout*", "*.jsonl")
_RANK = re.compile(r"(?:rank|task|proc)[-_.]?(\d+)", re.I)
_LAST_NUMBER = re.compile(r"(\d+)\D*$")
_MOST_BYTES = 4_000_000  # of the newest of each file


def log_files(directory: Path) -> dict[int, Path]:
    """Rank → file. The rank is the number after `rank` in the path, else the last number; else files are counted."""
    found = sorted({path for pattern in _LOGS for path in directory.rglob(pattern) if path.is_file()})
    numbered: dict[int, Path] = {}
    for path in found:
        inside = str(path.relative_to(directory))
        match = _RANK.search(inside) or _LAST_NUMBER.search(inside)
        if match is None or int(match[1]) in numbered or int(match[1]) >= len(found):
            return dict(enumerate(found))
        numbered[int(match[1])] = path
    return numbered if sorted(numbered) == list(range(len(found))) else dict(enumerate(found))


class FilesFeed:
    """Follows the files as they grow, or shows how they ended."""

    period_s = 1.0

    def __init__(self, name: str, files: Mapping[int, Path]) -> None:
        size = len(files)
        self.table = RankTable(
            JobInfo(
                job=name,
                name=name,
                state="files",
                mesh={"rank": size},
                hosts=[name],
                node_of=[0] * size,
                local_rank=list(range(size)),
                devices=[None] * size,
            )
        )
        self._logs = [(Tail(files[rank], _MOST_BYTES), LogReader()) for rank in range(size)]
        self._latest: list[Progress] = [Progress()] * size
        self._times = [path.stat().st_mtime for _, path in sorted(files.items())]

    def poll(self) -> Snapshot:
        for rank, (tail, reader) in enumerate(self._logs):
            data = tail.new()
            if data:
                self._times[rank] = tail.path.stat().st_mtime
                records = reader.feed(data)
                for record in [*records, *([reader.pending] if reader.pending else [])]:
                    self._latest[rank] = newer(self._latest[rank], record, self._times[rank])
        now = max(self._times)
        self.table.fill(now, np.full(len(self._logs), STATE_CODES["unknown"], dtype=np.int8), self._measures())
        self.table.extend_history()
        return self.table.snapshot(now)

    def seek(self, seconds: float) -> None:
        """Files show their end."""

    def close(self) -> None:
        """No file is kept open."""

    def _measures(self) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
        names = ("step", "total", "loss", "step_s", "data_s", "tokens_per_s")
        found = {name: np.array([getattr(one, name) for one in self._latest], dtype=np.float64) for name in names}
        sizes = np.array([tail.size for tail, _ in self._logs], dtype=np.float64)
        return {**found, "progress_time": np.array(self._times), "log_bytes": sizes}
