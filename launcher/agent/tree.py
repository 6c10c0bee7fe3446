"""The process tree of a node's part in a job: find all of it, end all of it, and say what is left.

torchrun's workers have sessions of their own and orphans change parents, so neither process groups nor parents
suffice: the agent is a subreaper (orphans come to it), and every process of a job carries DLAUNCH_JOB.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import psutil

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05


def become_subreaper() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def descendants(root: psutil.Process) -> list[psutil.Process]:
    """All living processes below `root`."""
    with suppress(psutil.NoSuchProcess):
        return [process for process in root.children(recursive=True) if process.status() != psutil.STATUS_ZOMBIE]
    return []


def members(job: str, node_rank: int | None = None) -> Iterator[psutil.Process]:
    """The living processes of this user that carry this job's mark, and the node's if given, in their environment."""
    marks = {f"DLAUNCH_JOB={job}".encode()}
    if node_rank is not None:
        marks.add(f"DLAUNCH_NODE_RANK={node_rank}".encode())
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            with open(f"/proc/{process.pid}/environ", "rb") as file:  # noqa: PTH123 -- the hot path of a scan
                carried = set(file.read().split(b"\0"))
            if marks <= carried and process.status() != psutil.STATUS_ZOMBIE:
                yield process


class Reaper:
    """Collects every child that ended, adopted orphans too; `statuses` maps pid to exit status (negative: signal)."""

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}

    def collect(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self.statuses[pid] = os.waitstatus_to_exitcode(status)


def end(processes: Iterable[psutil.Process], grace: float, collect: Callable[[], None] = lambda: None) -> list[int]:
    """SIGTERM, wait `grace` seconds, SIGKILL; returns the pids that are left (uninterruptible sleep).

    `collect` reaps children meanwhile, where the caller is their parent.
    """
    alive = list(processes)
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        alive = wait_for_end(alive, patience, collect)
        if not alive:
            break
    return [process.pid for process in alive]


def wait_for_end(processes: list[psutil.Process], patience: float, collect: Callable[[], None]) -> list[psutil.Process]:
    """Wait until all have ended or `patience` seconds have passed; returns those that live."""
    deadline = time.monotonic() + patience
    alive = processes
    while True:
        collect()
        alive = [process for process in alive if is_alive(process)]
        if not alive or time.monotonic() >= deadline:
            return alive
        time.sleep(POLL_S)


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs still; its pid alone is not enough (psutil compares start times), and a zombie is dead."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
