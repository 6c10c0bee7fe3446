"""State of the ranks' processes: running, stopped, in which kernel function, how much CPU between two looks."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from doctor.node.files import tail
from launcher.common.progress import parse_record

WORDS = {psutil.STATUS_TRACING_STOP: "stopped", psutil.STATUS_DEAD: "gone", psutil.STATUS_DISK_SLEEP: "disk-sleep"}
STEP_BYTES = 8_192
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


@dataclass(eq=False)
class Watched:
    """A process that is looked at, maybe twice; `cpu_s` at the time of the last look."""

    rank: int | None
    pid: int
    progress: Path | None = None  # its progress.jsonl
    cpu_s: float | None = None
    looked: float = 0.0
    started: float | None = None

    def __str__(self) -> str:
        return f"pid {self.pid}" if self.rank is None else f"rank {self.rank} (pid {self.pid})"


def watched(pids: Sequence[int], by_rank: Mapping[int, int], progress: Mapping[int, Path]) -> list[Watched]:
    """The ranks of a job, and other processes with the rank that their environment names."""
    ours = [Watched(rank, pid, progress.get(rank)) for rank, pid in sorted(by_rank.items())]
    return ours + [Watched(rank_of(pid), pid) for pid in pids]


def rank_of(pid: int) -> int | None:
    """The global rank in a process's environment, where that may be read."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    values = dict(pair.decode(errors="replace").split("=", 1) for pair in pairs if b"=" in pair)
    found = next((values[name] for name in RANK_VARIABLES if values.get(name, "").isdigit()), None)
    return int(found) if found else None


def look(processes: Sequence[Watched]) -> list[dict[str, Any]]:
    """One record (ProcessState's fields) for each process."""
    host, now = os.uname().nodename, time.time()
    return [{**_state(one, now), "rank": one.rank, "pid": one.pid, "host": host, "time": now} for one in processes]


def _state(one: Watched, now: float) -> dict[str, Any]:
    try:
        process = psutil.Process(one.pid)
        with process.oneshot():
            if one.started is not None and process.create_time() != one.started:
                return {"state": "gone"}
            status, times = process.status(), process.cpu_times()
            one.started = process.create_time()
    except psutil.NoSuchProcess:
        return {"state": "gone"}
    except psutil.AccessDenied:
        return {"state": "hidden"}
    spent = times.user + times.system
    cpu = None if one.cpu_s is None else (spent - one.cpu_s) / max(now - one.looked, 1e-6)
    one.cpu_s, one.looked = spent, now
    state: dict[str, Any] = {"state": WORDS.get(status, status), "cpu": cpu, "wchan": _proc(one.pid, "wchan")}
    kernel = [line.split("] ", 1)[-1].split("+")[0] for line in _proc(one.pid, "stack").splitlines()]
    return {**state, "kernel": kernel, "step": _step(one.progress)}


def _step(progress: Path | None) -> int | None:
    """The newest step in a rank's progress records: between two looks it tells moving from stuck."""
    if progress is None:
        return None
    lines = tail(progress, STEP_BYTES).splitlines()
    steps = [record.step for line in lines if (record := parse_record(line)) and record.step is not None]
    return steps[-1] if steps else None


def _proc(pid: int, name: str) -> str:
    try:
        text = Path(f"/proc/{pid}/{name}").read_text(errors="replace").strip()
    except OSError:
        return ""
    return "" if text == "0" else text
