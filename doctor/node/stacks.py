"""Stacks of the ranks by py-spy, which must never leave a rank stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from doctor.node.processes import Watched

TIMEOUT_S = 10.0
WORKERS = 8


def find_py_spy(given: str = "") -> str:
    """The py-spy to use: the one given, on PATH, or beside this Python; empty when there is none."""
    beside = Path(sys.executable).parent / "py-spy"
    candidates = (given, shutil.which("py-spy") or "", str(beside))
    return next((one for one in candidates if one and os.access(one, os.X_OK)), "")


def dump_stacks(processes: Sequence[Watched], py_spy: str, native: bool) -> Iterator[tuple[Watched, bytes, str]]:
    """(process, its stacks as JSON, why there are none) for all, a few at a time."""
    program = find_py_spy(py_spy)
    if not program:
        yield from ((one, b"", "py-spy is not on this host") for one in processes)
        return
    with ThreadPoolExecutor(WORKERS) as pool:
        yield from pool.map(lambda one: (one, *_dump(one, program, native)), processes)


def _dump(one: Watched, program: str, native: bool) -> tuple[bytes, str]:
    was_stopped = _stopped(one.pid)
    options = ["--native"] if native and not was_stopped else ["--nonblocking"] if was_stopped else []
    try:
        done = subprocess.run(
            [program, "dump", "--json", "--pid", str(one.pid), *options], capture_output=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return b"", f"py-spy gave no answer within {TIMEOUT_S:.0f} s"
    finally:
        if not was_stopped and _stopped(one.pid):
            os.kill(one.pid, signal.SIGCONT)
    if done.returncode:
        return b"", done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:300]
    about = {"dlaunch_stack": 1, "rank": one.rank, "host": os.uname().nodename}
    return json.dumps({**about, "threads": json.loads(done.stdout)}).encode(), ""


def _stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False
