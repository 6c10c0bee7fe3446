"""Run the benchmark of collectives as a job, and keep what it measured for each cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import CannotActError
from launcher.hosts.local import LocalHost
from launcher.jobs.control import start, wait
from launcher.jobs.output import tails
from launcher.jobs.prepare import prepare
from launcher.jobs.reach import connect_job
from launcher.jobs.record import JobRecord
from launcher.jobs.request import RunRequest
from launcher.placement.measured import comm_file
from launcher.planner.comm import Measured, read_lines

SCRIPT = Path(__file__).with_name("comm_script.py")


@dataclass(frozen=True)
class BenchRequest:
    """The options of `dlaunch bench comm`, as typed."""

    cluster: str | None = None
    inventory: Path | None = None
    nodes: str | None = None
    nproc_per_node: int | None = None
    env: Sequence[str] = ()
    sync: bool = False
    max_bytes: int | None = None
    iterations: int = 10


def measured(request: BenchRequest) -> Measured:
    """Run, read and keep. Raises InputError, and CannotActError where the job fails."""
    arguments = ["--iterations", str(request.iterations)]
    if request.max_bytes:
        arguments += ["--max-bytes", str(request.max_bytes)]
    prepared = prepare(
        RunRequest(
            script=str(SCRIPT),
            args=arguments,
            cluster=request.cluster,
            inventory=request.inventory,
            nodes=request.nodes,
            nproc_per_node=request.nproc_per_node,
            env=request.env,
            sync=request.sync,
            name="bench-comm",
        )
    )
    record = wait(start(prepared))
    if record.state != "succeeded":
        raise CannotActError(f"{record.job}: {record.state}: {record.reason}", help=f"dlaunch logs {record.job}")
    found = read_lines(_printed(record))
    if not found.samples:
        raise CannotActError(
            f"{record.job} measured nothing: one rank has nobody to talk to", help="--nproc-per-node 2"
        )
    keep(record.cluster, record.inventory, found)
    return found


def _printed(record: JobRecord) -> list[str]:
    """What rank 0 printed."""
    hosts = connect_job(record)
    try:
        stdout = tails(record, record.ranks[:1], hosts)[record.ranks[0].rank][0]
        lines: list[str] = []
        while more := stdout.lines(final=True):
            lines += more
        return lines
    finally:
        for host in hosts.values():
            host.close()


def keep(cluster: str, inventory: str, found: Measured) -> None:
    text = json.dumps({"schema": 1, "cluster": cluster, **found.to_json()})
    LocalHost().write(str(comm_file(cluster, inventory)), text.encode())
