"""Calls of Slurm's client commands on this machine: one poll for all jobs, with back-off."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from launcher.errors import CannotActError
from launcher.hosts.local import LocalHost
from launcher.slurm.refusals import Refusal, refusal
from launcher.slurm.status import (
    ACCOUNTING_FIELDS,
    QUEUE_FORMAT,
    SEPARATOR,
    JobStatus,
    jobs_from_accounting,
    jobs_from_queue,
    jobs_from_scontrol,
)
from launcher.slurm.text import help_options

CALL_S = 30.0
ON_A_LOGIN_NODE = "run dlaunch on a login node of the Slurm cluster"
PATIENCE_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0


class SlurmCallError(CannotActError):
    """A client command failed; `refusal` says why."""

    def __init__(self, command: str, refusal: Refusal) -> None:
        super().__init__(f"{command}: {refusal.message}", help=refusal.help)
        self.refusal = refusal


def call(argv: Sequence[str], *, input: bytes = b"") -> str:
    """Output of a Slurm command. Raises SlurmCallError, or CannotActError where there is no such command."""
    if shutil.which(argv[0]) is None:
        raise CannotActError(f"there is no {argv[0]} here", help=ON_A_LOGIN_NODE)
    done = LocalHost().run(argv, input=input, timeout=CALL_S)
    if done.status:
        raise SlurmCallError(argv[0], refusal(done.stderr.decode(errors="replace") or done.text))
    return done.text


def queue(user: str | None = None) -> list[JobStatus]:
    """All jobs that the controller still knows, ended ones too (MinJobAge, often 5 minutes): one squeue."""
    owner = [f"--user={user}"] if user else []
    return jobs_from_queue(call(["squeue", "--noheader", "--states=all", *owner, f"--format={QUEUE_FORMAT}"]))


def accounting(ids: Iterable[str], *options: str) -> list[JobStatus]:
    """What the accounting says of jobs, the newest record of each; nothing where there is no accounting."""
    form = ["--noheader", "--parsable2", f"--delimiter={SEPARATOR}", f"--format={ACCOUNTING_FIELDS}"]
    try:
        text = call(["sacct", "--allocations", f"--jobs={','.join(ids)}", *form, *options])
    except SlurmCallError as error:
        if error.refusal.kind == "no_accounting":
            return []
        raise
    return jobs_from_accounting(text)


def earlier_runs(job_id: str) -> list[JobStatus]:
    """The runs of a job that ended and were requeued, oldest first; nothing where there is no accounting."""
    return [status for status in accounting([job_id], "--duplicates") if status.state.ended]


def show_job(job_id: str) -> JobStatus:
    """All that the controller knows of one job. Raises SlurmCallError (`unknown_job`)."""
    return jobs_from_scontrol(call(["scontrol", "show", "job", "--details", job_id]))[0]


def cancel(job_id: str) -> None:
    call(["scancel", job_id])


def requeue(job_id: str) -> None:
    """From inside the job too: Slurm's SIGTERM to all of its processes does not end the call that brings it."""
    call(["sh", "-c", 'trap "" TERM; exec scontrol requeue "$0"', job_id])


def exclude(job_id: str, nodes: Sequence[str], wanted: int, partition: str | None) -> bool:
    """Keep a requeued job from `nodes`, if its partition has `wanted` others; whether that could be done."""
    where = [f"--partition={partition}"] if partition else []
    named = {name for hostlist in nodes for name in hostnames(hostlist)}
    left = set(call(["sinfo", "--noheader", "--Node", "--format=%N", *where]).split()) - named
    deadline = time.monotonic() + PATIENCE_S
    while len(left) >= wanted and time.monotonic() < deadline:
        try:  # Slurm refuses until the old run has ended
            call(["scontrol", "update", f"jobid={job_id}", f"excnodelist={','.join(nodes)}"])
            return True
        except SlurmCallError:
            time.sleep(0.2)
    return False


def hostnames(hostlist: str) -> list[str]:
    """The names in Slurm's own order."""
    return call(["scontrol", "show", "hostnames", hostlist]).split()


def option_names() -> frozenset[str]:
    """The long options that `sbatch --help` lists; some that it takes are missing there."""
    return help_options(call(["sbatch", "--help"]))


@dataclass(frozen=True)
class Sight:
    """One look at the queue: `jobs` by id. `trouble`: why Slurm could not be asked; the jobs are then the last seen."""

    jobs: dict[str, JobStatus]
    trouble: str = ""


@dataclass
class Poller:
    """Looks at all jobs with one squeue, never more often than its pause, which grows while nothing changes."""

    user: str | None = None
    _sight: Sight = field(default_factory=lambda: Sight({}))
    _asked: float = -math.inf
    _pause: float = FIRST_PAUSE_S

    def look(self, oldest: float = math.inf) -> Sight:
        """The newest sight, not older than `oldest` seconds; otherwise up to LONGEST_PAUSE_S."""
        if time.monotonic() < self._asked + min(self._pause, oldest):
            return self._sight
        before = self._sight
        self._sight = self._ask(before)
        changed = self._sight.jobs != before.jobs
        self._pause = FIRST_PAUSE_S if changed else min(self._pause * 1.5, LONGEST_PAUSE_S)
        self._asked = time.monotonic()
        return self._sight

    def _ask(self, before: Sight) -> Sight:
        try:
            return Sight({job.id: job for job in queue(self.user)})
        except CannotActError as error:
            return Sight(before.jobs, error.message)
