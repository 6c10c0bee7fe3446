"""Run the benchmark of collectives as a job, and keep what it measured for each cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from launcher.errors import CannotActError, InputError
from launcher.hosts.local import LocalHost
from launcher.hosts.protocol import Host
from launcher.inventory import SlurmCluster, load_inventory
from launcher.jobs.control import start, wait
from launcher.jobs.output import tails
from launcher.jobs.prepare import prepare
from launcher.jobs.reach import addresses, connect, connect_job
from launcher.jobs.record import JobRecord
from launcher.jobs.request import RunRequest, candidate_hosts
from launcher.placement.measured import comm_file
from launcher.planner.comm import Measured, Sample, read_lines, read_nccl_tests
from launcher.topology.probe import probe

SCRIPT = Path(__file__).with_name("comm_script.py")
ALGORITHMS, PROTOCOLS = ("Ring", "Tree", "NVLS"), ("LL", "LL128", "Simple")
PERF = "all_reduce_perf"
PERF_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class BenchRequest:
    """The options of `dlaunch bench comm`, as typed."""

    cluster: str | None = None
    inventory: Path | None = None
    nodes: str | None = None
    nproc_per_node: int | None = None
    mesh: str | None = None
    env: Sequence[str] = ()
    sync: bool = False
    max_bytes: int | None = None
    iterations: int = 10
    sweep: bool = False


def measured(request: BenchRequest) -> Measured:
    """Run, read and keep; groups of a mesh's axes are shown and not kept. Raises InputError, and CannotActError where
    a job fails."""
    found, record = _run(request, [])
    if not found.samples:
        raise CannotActError(
            f"{record.job} measured nothing: one rank has nobody to talk to", help="--nproc-per-node 2"
        )
    if not request.mesh:
        keep(record.cluster, record.inventory, found)
    return replace(found, sweep=_sweep(request)) if request.sweep and found.backend == "nccl" else found


def _sweep(request: BenchRequest) -> dict[tuple[str, str], Sequence[Sample]]:
    """The all-reduces under each algorithm and protocol; those that NCCL does not have on this hardware are left out.

    NCCL reads both variables once, so each pair is a job of its own.
    """
    found = {}
    for algo, proto in product(ALGORITHMS, PROTOCOLS):
        variant = replace(request, env=(*request.env, f"NCCL_ALGO={algo}", f"NCCL_PROTO={proto}"))
        try:
            samples = _run(variant, ["--ops", "all_reduce"])[0].samples
        except CannotActError:
            continue
        found[algo, proto] = samples
    return found


def _run(request: BenchRequest, arguments: Sequence[str]) -> tuple[Measured, JobRecord]:
    arguments = ["--iterations", str(request.iterations), *arguments]
    if request.max_bytes:
        arguments += ["--max-bytes", str(request.max_bytes)]
    if request.mesh:
        arguments += ["--mesh", request.mesh]
    prepared = prepare(
        RunRequest(
            script=str(SCRIPT),
            args=arguments,
            cluster=request.cluster,
            inventory=request.inventory,
            nodes=request.nodes,
            nproc_per_node=request.nproc_per_node,
            mesh=request.mesh,
            env=request.env,
            sync=request.sync,
            name="bench-comm",
        )
    )
    record = wait(start(prepared))
    if record.state != "succeeded":
        raise CannotActError(f"{record.job}: {record.state}: {record.reason}", help=f"dlaunch logs {record.job}")
    return read_lines(_printed(record)), record


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


def nccl_tests(cluster_name: str | None, inventory: Path | None) -> Measured:
    """Run all_reduce_perf over all devices of the cluster's first host, read and keep it.

    Raises InputError (a cluster of Slurm) and CannotActError (no such program or fewer than two devices there).
    """
    loaded, file = load_inventory(inventory)
    name, cluster = loaded.cluster(cluster_name)
    if isinstance(cluster, SlurmCluster):
        raise InputError("a Slurm job must run it", where="--nccl-tests", help=f"srun {PERF} … > FILE; --table FILE")
    first = candidate_hosts(cluster, ())[0]
    host = connect([first], addresses(cluster))[first]
    try:
        found = read_nccl_tests(_perf(host), f"{PERF} on {first}")
    finally:
        host.close()
    inside = replace(found, samples=[replace(sample, scope="inside") for sample in found.samples])
    keep(name, file, inside)
    return inside


def _perf(host: Host) -> str:
    devices = len(probe(host).devices)
    if devices < 2:
        raise CannotActError(f"{host.name} has {devices} devices: {PERF} needs two", help="dlaunch bench comm")
    done = host.run([PERF, "-b", "1K", "-e", "1G", "-f", "4", "-g", str(devices)], timeout=PERF_TIMEOUT_S)
    if done.status:
        raise CannotActError(
            f"{PERF} on {host.name} ended with {done.status}: {done.last_words}",
            help="github.com/NVIDIA/nccl-tests builds it; its folder must be on PATH there",
        )
    return done.text


def keep(cluster: str, inventory: str, found: Measured) -> None:
    text = json.dumps({"schema": 1, "cluster": cluster, **found.to_json()})
    LocalHost().write(str(comm_file(cluster, inventory)), text.encode())
