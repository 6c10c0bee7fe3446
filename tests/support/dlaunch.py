"""Drive the real `dlaunch` as a user does, with a home of its own, and look at what it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil

from launcher.common.agent_status import AgentStatus
from launcher.common.paths import JobPaths
from launcher.jobs.record import JobRecord, read_record

BIN = Path(sys.executable).parent
T = TypeVar("T")
DEADLINE_S = 90.0


def wait_until(condition: Callable[[], T], what: str, deadline: float = DEADLINE_S) -> T:
    """The first true value of `condition`; fails after `deadline` seconds."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what} did not happen within {deadline:g} s"
        time.sleep(0.05)


class Dlaunch:
    """`dlaunch` with its records in `home`, started in folder `work`."""

    def __init__(self, home: Path, work: Path) -> None:
        self.home, self.work = home, work

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "DLAUNCH_HOME": str(self.home)}

    def argv(self, *args: str) -> list[str]:
        return [str(BIN / "dlaunch"), *args]

    def run(
        self, *args: str, timeout: float = 150.0, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*args),
            env={**self.env, **(env or {})},
            cwd=self.work,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )

    def json(self, *args: str, status: int = 0) -> Any:
        """The JSON document of a call that ends with `status`."""
        done = self.run(args[0], "--json", *args[1:])
        assert done.returncode == status, done.stderr + done.stdout
        return json.loads(done.stdout)

    def doctor(self, *args: str) -> Any:
        """The JSON document of a call of `ddoctor`, whatever it says."""
        argv = [str(BIN / "ddoctor"), args[0], "--json", *args[1:]]
        done = subprocess.run(argv, env=self.env, cwd=self.work, capture_output=True, text=True, timeout=90)
        return json.loads(done.stdout)

    def detach(self, *args: str) -> str:
        """Start a job detached; returns its id."""
        return str(self.json("run", "--detach", *args)["job"])

    def paths(self, job: str) -> JobPaths:
        return JobPaths(self.home / "jobs" / job)

    def record(self, job: str) -> JobRecord:
        return read_record(self.paths(job).record)

    def statuses(self, job: str) -> list[AgentStatus]:
        files = sorted(self.paths(job).root.glob("nodes/*/agent.json"))
        return [AgentStatus.from_json(json.loads(path.read_text())) for path in files]

    def rank_pids(self, job: str) -> dict[int, int]:
        """rank -> pid of the ranks that have started."""
        return {rank.rank: rank.pid for status in self.statuses(job) for rank in status.ranks if rank.pid is not None}

    def wait_for_ranks(self, job: str, count: int) -> dict[int, int]:
        return wait_until(lambda: pids if len(pids := self.rank_pids(job)) == count else None, f"{count} ranks start")

    def wait_for_file(self, path: Path) -> None:
        wait_until(path.exists, f"{path.name} appears")

    def output(self, job: str, rank: int, attempt: int = 0, name: str = "stdout") -> str:
        return (self.paths(job).rank(rank, attempt) / name).read_text(errors="replace")

    def script(self, text: str, name: str = "job.py") -> str:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)


def members(job: str) -> list[int]:
    """Pids of every living process that carries the job's mark."""
    mark = f"DLAUNCH_JOB={job}".encode()
    found = []
    for process in psutil.process_iter():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if mark in environment and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (OSError, psutil.Error):
            continue
    return found


def no_members(job: str) -> None:
    wait_until(lambda: not members(job), f"the last process of {job} ends", 15)


SAY_AND_WAIT = """\
import os, pathlib, time
rank, folder = int(os.environ["RANK"]), pathlib.Path(__file__).parent
print("rank", rank, "attempt", os.environ["DLAUNCH_ATTEMPT"], flush=True)
(folder / f"ready-{rank}").touch()
while not (folder / "go").exists():
    time.sleep(0.05)
"""


def ready(work: Path, ranks: Sequence[int]) -> None:
    """Wait until SAY_AND_WAIT has begun on `ranks`."""
    for rank in ranks:
        wait_until((work / f"ready-{rank}").exists, f"rank {rank} begins")
