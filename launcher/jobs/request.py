"""From what the user typed to a validated JobSpec: pure but for looking whether the script exists."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import workloads
from launcher.errors import InputError, suggestion
from launcher.hosts.names import among
from launcher.spec import JobSpec, MeshSpec
from workloads.common.states import DEFAULT_MESH, default_degrees

if TYPE_CHECKING:
    from launcher.inventory import Cluster

MOST_SIMULATED_NODES = 256  # more is taken for a slip: each is an agent and its ranks on this machine
DATA_AXES = ("dp_replicate", "dp_shard")
WORKLOADS = Path(workloads.__file__).parent


@dataclass(frozen=True)
class RunRequest:
    """The options of `dlaunch run`, as typed."""

    script: str
    args: Sequence[str] = ()
    cluster: str | None = None
    inventory: Path | None = None
    nodes: str | None = None
    nproc_per_node: int | None = None
    mesh: str | None = None
    name: str | None = None
    env: Sequence[str] = ()
    exclude: Sequence[str] = ()
    exclude_bad: bool = False
    max_restarts: int = 0
    debug_collectives: bool = False
    sync: bool = False
    no_torchrun: bool = False
    sbatch: Sequence[str] = ()


def resolve_script(script: str) -> Path:
    """The script's absolute path: as given, else a bundled workload (`workloads/hsdp.py`). Raises InputError."""
    given = Path(script)
    if given.is_file():
        return given.absolute()
    if given.is_dir():
        raise InputError(f"{script} is a folder", where="SCRIPT", help="name a Python file")
    bundled = WORKLOADS / given.name
    if given.parent.name in ("workloads", "") and bundled.is_file() and not given.is_absolute():
        return bundled
    names = sorted(f"workloads/{path.name}" for path in WORKLOADS.glob("*.py") if not path.name.startswith("_"))
    raise InputError(f"no such script: {script}{suggestion(script, names)}", where="SCRIPT")


def parse_nodes(text: str | None, default: int) -> tuple[int, int]:
    """`4` or `6:8` -> (minimum, maximum). Raises InputError."""
    if text is None:
        return default, default
    low, colon, high = text.partition(":")
    try:
        minimum, maximum = int(low), int(high if colon else low)
    except ValueError:
        raise InputError(
            f"{text!r} is no number", where="--nodes", help="for example --nodes 4 or --nodes 6:8"
        ) from None
    if not 1 <= minimum <= maximum:
        raise InputError(f"{text!r} is no range of at least one node", where="--nodes", help="for example --nodes 6:8")
    return minimum, maximum


def parse_env(assignments: Sequence[str]) -> dict[str, str]:
    """`K=V` from the command line; `K` alone takes the shell's value. Raises InputError."""
    values = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not name or not name.replace("_", "a").isalnum() or name[0].isdigit():
            raise InputError(f"{assignment!r} is not NAME=VALUE", where="--env")
        if not equals and name not in os.environ:
            raise InputError(f"{name} is not set in this shell", where="--env", help=f"--env {name}=VALUE")
        values[name] = value if equals else os.environ[name]
    return values


def check_kind(request: RunRequest, cluster: Cluster) -> None:
    """Raises InputError for an option that means nothing on a cluster of this kind."""
    if request.sbatch and cluster.kind != "slurm":
        raise InputError("there is no Slurm on this cluster", where="--sbatch", help="--cluster with one of kind slurm")
    if request.exclude and cluster.kind == "local":
        raise InputError("the simulated nodes are all this machine", where="--exclude", help="fewer --nodes")


def candidate_hosts(cluster: Cluster, exclude: Sequence[str]) -> list[str]:
    """Hosts that a job may take, in order, without the excluded ones and the spares. Raises InputError."""
    if cluster.kind == "local":
        return [f"node{number}" for number in range(cluster.nodes)]
    assert cluster.kind == "ssh"
    names = [entry.name for entry in cluster.hosts]
    excluded = among(exclude, names, "--exclude")
    return [name for name in names if name not in excluded and name not in cluster.spares]


def build_spec(request: RunRequest, cluster: Cluster, hosts: Sequence[str], devices_per_host: int | None) -> JobSpec:
    """Resolve the shape. `hosts` are the candidates; raises InputError where the wish cannot be met."""
    script = resolve_script(request.script)
    if request.no_torchrun and script.suffix != ".py" and not os.access(script, os.X_OK):
        raise InputError(f"{script} is neither Python nor a program", where="SCRIPT", help=f"chmod +x {script}")
    known = len(hosts) if cluster.kind == "ssh" else cluster.nodes or 1
    minimum, maximum = parse_nodes(request.nodes, known)
    most = {"ssh": len(hosts), "local": MOST_SIMULATED_NODES}.get(cluster.kind, maximum)
    if minimum > most:
        raise InputError(
            f"{minimum} nodes asked for, but the cluster has {most} hosts to give",
            where="--nodes",
            help="fewer --nodes, or more `hosts` in an inventory of SSH hosts",
        )
    nodes = min(maximum, most)
    given = MeshSpec.parse(request.mesh) if request.mesh else None
    wanted = given.world_size // nodes if given and given.world_size % nodes == 0 else None
    nproc = request.nproc_per_node or cluster.nproc_per_node or wanted or devices_per_host or 1
    mesh = given or default_mesh(script, nodes, nproc)
    return JobSpec(
        name=request.name or script.stem,
        script=str(script),
        args=tuple(request.args),
        nodes=nodes,
        nproc_per_node=nproc,
        mesh=mesh,
        mesh_given=bool(request.mesh),
        min_nodes=minimum if minimum != maximum else None,
        max_nodes=maximum if minimum != maximum else None,
        max_restarts=request.max_restarts,
        debug_collectives=request.debug_collectives,
        sync=request.sync,
        torchrun=not request.no_torchrun,
    )


def default_mesh(script: Path, nodes: int, nproc: int) -> MeshSpec:
    """The mesh that a bundled workload lays out when it is given none; for other scripts one data axis."""
    if script.parent == WORKLOADS and script.stem in DEFAULT_MESH:
        return MeshSpec(default_degrees(script.stem, nodes, nproc))
    return MeshSpec({"dp_replicate": nodes * nproc})


def resized(spec: JobSpec, nodes: int) -> JobSpec:
    """The spec for another number of nodes (elastic): a data axis takes up the difference. Raises InputError."""
    if nodes == spec.nodes:
        return spec
    degrees = dict(spec.mesh.degrees)
    world = nodes * spec.nproc_per_node
    for axis in DATA_AXES:
        rest = spec.mesh.world_size // degrees.get(axis, 1)
        if axis in degrees and world % rest == 0:
            return replace(spec, nodes=nodes, mesh=MeshSpec({**degrees, axis: world // rest}))
    raise InputError(f"{spec.mesh} does not fit {nodes} nodes x {spec.nproc_per_node}", where="--nodes")


@dataclass(frozen=True)
class Environments:
    """The variables that a cluster and the command line add, by origin."""

    inventory: Mapping[str, str] = field(default_factory=dict)
    command_line: Mapping[str, str] = field(default_factory=dict)
    forwarded: Mapping[str, str] = field(default_factory=dict)


FORWARDED = ("HF_TOKEN", "WANDB_API_KEY", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_MODE", "HF_HOME", "HF_HUB_OFFLINE")
FORWARDED_PREFIXES = ("NCCL_", "TORCH_", "GLOO_", "CUDA_DEVICE_", "PYTORCH_", "OMP_")


def environments(request: RunRequest, cluster: Cluster) -> Environments:
    """What goes to the ranks beside our defaults; over SSH also the shell's variables by an allow-list (and `forward`),
    which ranks of this machine and of Slurm inherit."""
    forwarded = {}
    if cluster.kind == "ssh":
        allowed = {*FORWARDED, *cluster.forward}
        forwarded = {k: v for k, v in os.environ.items() if k in allowed or k.startswith(FORWARDED_PREFIXES)}
    return Environments(cluster.env, parse_env(request.env), forwarded)
