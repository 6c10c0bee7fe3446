"""What goes along with a run: scheduled garbage collection, a profiler window, a snapshot when out of memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch


class GarbageCollection:
    """Collects at the same step on all ranks, so that no rank pauses while the others wait for it."""

    def __init__(self, every: int) -> None:
        self._every = every
        if every:
            gc.disable()
            gc.collect()

    def step(self, step: int) -> None:
        if self._every and step % self._every == 0:
            gc.collect(1)

    def close(self) -> None:
        if self._every:
            gc.enable()


def parse_window(text: str) -> range:
    """`10:15` -> steps 10 … 14, counted from 1; raises ValueError."""
    first, colon, last = text.partition(":")
    if not colon or not first.isdigit() or not last.isdigit() or not 0 < int(first) < int(last):
        raise ValueError(f"profile: {text!r} is not FIRST:END, for example 10:15")
    return range(int(first), int(last))


class Profile:
    """torch's profiler over a window of steps; writes `trace-rank-N.json` for Perfetto when it closes."""

    def __init__(self, window: str, directory: Path, rank: int) -> None:
        self._steps = parse_window(window) if window else range(0)
        self._file = directory / f"trace-rank-{rank}.json"
        self._profiler: Any = None

    def step(self, step: int) -> None:
        """Called before each step, counted from 1."""
        if self._steps and step == self._steps.start:
            self._profiler = torch.profiler.profile(record_shapes=True)
            self._profiler.start()
        if self._profiler and step == self._steps.stop:
            self.close()

    def close(self) -> None:
        if self._profiler:
            self._profiler.stop()
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._profiler.export_chrome_trace(str(self._file))
            self._profiler = None


def memory_snapshot(device: torch.device, file: Path) -> AbstractContextManager[None]:
    """If the block runs out of device memory, write who had allocated what; read it at pytorch.org/memory_viz."""
    return _snapshot(file) if device.type == "cuda" else nullcontext()


@contextmanager
def _snapshot(file: Path) -> Iterator[None]:
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    try:
        yield
    except torch.OutOfMemoryError:
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.cuda.memory._dump_snapshot(str(file))  # type: ignore[no-untyped-call]
        raise
