"""Slurm jobs that we did not start: what Slurm knows of them, and their ranks where we may look."""

from __future__ import annotations

import getpass
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launcher.common.paths import home
from launcher.errors import CannotActError, InputError
from launcher.hosts.bundle import archive, shared_bundle
from launcher.hosts.node_side import call
from launcher.hosts.protocol import Answers, on_all
from launcher.hosts.slurm import SlurmHost
from launcher.jobs.record import Process
from launcher.slurm import client
from launcher.slurm.client import SlurmCallError
from launcher.slurm.status import JobStatus

PYTHON = "python3"


@dataclass(frozen=True)
class ForeignRank:
    """A rank with the process that carries it. `pid` and `start_time` are the host's, also in a container."""

    rank: int
    local_rank: int
    world_size: int
    process: Process
    script: str
    device: str | None
    endpoint: str


@dataclass(frozen=True)
class ForeignJob:
    """`missing`: why ranks are not known, one line for each node; empty where all nodes were looked at."""

    status: JobStatus
    ranks: Sequence[ForeignRank]
    missing: Sequence[str] = ()

    @property
    def job(self) -> str:
        return f"slurm:{self.status.id}"


def find_foreign(job_id: str, sudo: bool = False) -> ForeignJob:
    """Look for the ranks of a running job on its nodes. Never guesses: what could not be seen is in `missing`.

    A job of another user needs `sudo`. Raises InputError for an id that Slurm does not know.
    """
    try:
        status = client.show_job(job_id.removeprefix("slurm:"))
    except SlurmCallError as error:
        if error.refusal.kind != "unknown_job":
            raise
        raise InputError(f"Slurm knows no job {job_id}", where="JOB", help="dlaunch ps") from error
    if not status.nodes or status.state.phase != "running":
        return ForeignJob(status, (), [f"it is {status.state.name}: it has no processes"])
    if status.user != getpass.getuser() and not sudo:
        return ForeignJob(status, (), [f"it belongs to {status.user}: only with --sudo may its processes be looked at"])
    nodes = client.hostnames(status.nodes)
    if status.user != getpass.getuser():
        return judge(status, on_all([SlurmHost(node, status.id, status.user) for node in nodes], _look_as_owner))
    bundle = shared_bundle(home() / "node-side", with_psutil=True)
    hosts = [SlurmHost(node, status.id) for node in nodes]
    return judge(status, on_all(hosts, lambda host: call(host, PYTHON, bundle, "foreign", slurm_job=status.id)))


# Another user may not read our folders, nor have we anything to leave in his.
_UNPACK_AND_RUN = """\
import subprocess, sys, tarfile, tempfile
with tempfile.TemporaryDirectory() as folder:
    tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz").extractall(folder)
    sys.exit(subprocess.call([sys.executable, folder, *sys.argv[1:]], stdin=subprocess.DEVNULL))
"""


def _look_as_owner(host: SlurmHost) -> dict[str, Any]:
    """`call` of `foreign`, with the node side on standard input. Raises HostError, or CannotActError with its words."""
    arguments = json.dumps({"slurm_job": host.job_id})
    done = host.run([PYTHON, "-c", _UNPACK_AND_RUN, "foreign", arguments], input=archive(with_psutil=True))
    if done.status:
        raise CannotActError(f"{host.name}: as {host.owner}: {done.last_words}", help="sudo --list")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def judge(status: JobStatus, answers: Answers[dict[str, Any]]) -> ForeignJob:
    """The ranks that the nodes told, and what they could not tell. Pure."""
    ranks, missing = [], list(answers.reasons.values())
    for node, answer in answers.good.items():
        ranks += [_rank(node, found) for found in answer["ranks"]]
        if answer["unreadable"]:
            missing.append(f"{node}: processes of uid {', '.join(map(str, answer['unreadable']))} may not be read")
        elif not answer["ranks"]:
            missing.append(f"{node}: no process there has a rank in its environment")
    ranks.sort(key=lambda rank: rank.rank)
    world = max((rank.world_size for rank in ranks), default=0)
    known = {rank.rank for rank in ranks}
    if ranks and not missing and known != set(range(world)):
        missing.append(f"only {len(known)} of {world} ranks have a process")
    return ForeignJob(status, ranks, missing)


def _rank(node: str, found: dict[str, Any]) -> ForeignRank:
    return ForeignRank(
        rank=found["rank"],
        local_rank=found["local_rank"],
        world_size=found["world_size"],
        process=Process(node, found["pid"], found["start_time"]),
        script=found["script"],
        device=found["device"],
        endpoint=found["endpoint"],
    )
