"""JobSpec + nodes -> what is started on each node: argv, environment with the origin of each variable. Pure.

`run` executes what `render` prints: both call `render_node`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from launcher.agent.shim import rank_environment
from launcher.common.binding import Binding, index_list
from launcher.common.fields import from_fields
from launcher.common.paths import JobPaths
from launcher.secrets import MASK, is_secret
from launcher.spec import JobSpec

SHIM = "launcher/agent/shim.py"
RANKS = "launcher/agent/ranks.py"
Origin = Literal["default", "inventory", "command line", "forwarded", "placement", "job"]

LEFTOVERS = {
    "NCCL_P2P_DISABLE": "turns off NVLink and PCIe peer transfers",
    "NCCL_SHM_DISABLE": "turns off shared memory between processes",
    "NCCL_IB_DISABLE": "turns off InfiniBand and RoCE",
    "NCCL_ALGO": "forces one algorithm for all sizes",
    "NCCL_PROTO": "forces one protocol for all sizes",
    "NCCL_DEBUG_SUBSYS": "narrows or floods NCCL's log",
    "NCCL_NET_GDR_LEVEL": "overrides where GPUDirect RDMA is used",
    "CUDA_LAUNCH_BLOCKING": "makes every kernel launch wait",
    "TORCH_DISTRIBUTED_DEBUG": "checks every collective",
    "TORCH_NCCL_BLOCKING_WAIT": "blocks the host in each collective",
    "NCCL_BLOCKING_WAIT": "blocks the host in each collective",
    "TORCH_USE_CUDA_DSA": "slows every kernel",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "allocates from the driver each time",
}


@dataclass(frozen=True)
class Variable:
    """One variable that we set, and who wanted it."""

    name: str
    value: str
    origin: Origin

    @property
    def shown(self) -> str:
        return MASK if is_secret(self.name, self.value) else self.value


@dataclass(frozen=True)
class Rendezvous:
    """Where the nodes of one attempt meet: an address that all were seen to reach, and a port of this attempt."""

    address: str
    port: int


@dataclass(frozen=True)
class NodePlan:
    """What is known of one node before the start. `directory` is the job's directory there."""

    node_rank: int
    host: str
    directory: str
    python: str
    bundle: str
    workdir: str
    cpus: int = 1
    clock_offset: float = 0.0  # its clock minus ours, in seconds
    script: str | None = None  # where it lies elsewhere than here
    interface: str | None = None  # for gloo, where the host's own name does not lead to it
    devices: Sequence[str] = ()  # UUIDs in the order of local ranks; empty: CPU
    visible_variable: str = "CUDA_VISIBLE_DEVICES"  # that the devices' runtime reads
    hide_devices: bool = False  # there are some, but too few for all ranks
    bindings: Sequence[Binding] = ()  # by local rank; empty: no binding

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> NodePlan:
        """Raises TypeError where the document lacks a field; unknown keys, as of other versions, are passed over."""
        bindings = tuple(Binding.from_json(binding) for binding in document.get("bindings", ()))
        return from_fields(cls, document, bindings=bindings)


@dataclass(frozen=True)
class Settings:
    """What a cluster's entry and the command line add to every node."""

    inventory_env: Mapping[str, str] = field(default_factory=dict)
    command_line_env: Mapping[str, str] = field(default_factory=dict)
    forwarded_env: Mapping[str, str] = field(default_factory=dict)
    setup: Sequence[str] = ()
    container: Sequence[str] = ()
    checkpoint_directory: str | None = None  # None: checkpoints could not be read by another host


@dataclass(frozen=True)
class NodeLaunch:
    """What the agent of one node starts."""

    node_rank: int
    host: str
    workdir: str
    argv: tuple[str, ...]
    environment: tuple[Variable, ...]

    @property
    def env(self) -> dict[str, str]:
        return {variable.name: variable.value for variable in self.environment}

    @property
    def command_line(self) -> str:
        return shlex.join(self.argv)


def render_node(
    job: str, spec: JobSpec, node: NodePlan, rendezvous: Rendezvous, settings: Settings, attempt: int
) -> NodeLaunch:
    """The command and environment of one node in one attempt."""
    start = torchrun_argv(job, spec, node, rendezvous, attempt) if spec.torchrun else bare_argv(spec, node, rendezvous)
    argv = (*settings.container, *start, f"{node.bundle}/{SHIM}", *command_argv(spec, node))
    if settings.setup:
        script = "\n".join([*settings.setup, 'exec "$@"'])
        argv = ("bash", "-c", f"set -e\n{script}", "dlaunch-setup", *argv)
    environment = merge_environment(job, spec, node, settings, attempt)
    return NodeLaunch(node.node_rank, node.host, node.workdir, argv, environment)


def torchrun_argv(job: str, spec: JobSpec, node: NodePlan, rendezvous: Rendezvous, attempt: int) -> tuple[str, ...]:
    """Static rendezvous keeps our order of nodes; `--max-restarts 0` because a restart is a new attempt of all."""
    options = {
        "--nnodes": spec.nodes,
        "--nproc-per-node": spec.nproc_per_node,
        "--node-rank": node.node_rank,
        "--rdzv-backend": "static",
        "--rdzv-id": f"{job}-{attempt}",
        "--rdzv-endpoint": endpoint(rendezvous),
        "--max-restarts": 0,
        "--log-dir": JobPaths(Path(node.directory)).torchrun_logs(node.node_rank, attempt),
    }
    return (node.python, "-m", "torch.distributed.run", *flags(options))


def bare_argv(spec: JobSpec, node: NodePlan, rendezvous: Rendezvous) -> tuple[str, ...]:
    """Without torchrun: a few lines of ours start the ranks. Python, since the shim is no program by itself."""
    options = {
        "--nnodes": spec.nodes,
        "--nproc-per-node": spec.nproc_per_node,
        "--node-rank": node.node_rank,
        "--master-addr": rendezvous.address,
        "--master-port": rendezvous.port,
    }
    return (node.python, f"{node.bundle}/{RANKS}", *flags(options), node.python)


def command_argv(spec: JobSpec, node: NodePlan) -> tuple[str, ...]:
    """What a rank is in the end; without torchrun a file that is no Python runs by itself."""
    script = node.script or spec.script
    python = (node.python, "-u") if spec.torchrun or script.endswith(".py") else ()
    return (*python, script, *spec.args)


def flags(options: Mapping[str, object]) -> list[str]:
    return [part for name, value in options.items() for part in (name, str(value))]


def endpoint(rendezvous: Rendezvous) -> str:
    address = f"[{rendezvous.address}]" if ":" in rendezvous.address else rendezvous.address
    return f"{address}:{rendezvous.port}"


def merge_environment(
    job: str, spec: JobSpec, node: NodePlan, settings: Settings, attempt: int
) -> tuple[Variable, ...]:
    """Each variable once, by rising precedence: default, inventory, forwarded, command line; ours of the job last."""
    layers: list[tuple[Origin, Mapping[str, str]]] = [
        ("default", default_environment(spec, node)),
        ("inventory", settings.inventory_env),
        ("forwarded", settings.forwarded_env),
        ("command line", settings.command_line_env),
        ("placement", placement_environment(node)),
        ("job", job_environment(job, spec, node, settings, attempt)),
    ]
    merged: dict[str, Variable] = {}
    for origin, values in layers:
        merged.update({name: Variable(name, value, origin) for name, value in values.items()})
    return tuple(merged[name] for name in sorted(merged))


def default_environment(spec: JobSpec, node: NodePlan) -> dict[str, str]:
    """What we set where nobody else did."""
    values = {"OMP_NUM_THREADS": str(max(1, node.cpus // spec.nproc_per_node)), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if spec.debug_collectives:
        values["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    if node.interface:
        values["GLOO_SOCKET_IFNAME"] = node.interface
    return values


def placement_environment(node: NodePlan) -> dict[str, str]:
    values = {}
    if node.devices or node.hide_devices:
        values[node.visible_variable] = ",".join(node.devices)
    if node.bindings:
        values["DLAUNCH_CPUS"] = json.dumps([index_list(binding.cpus or "") for binding in node.bindings])
    if any(binding.nic for binding in node.bindings):
        values["DLAUNCH_NICS"] = json.dumps([binding.nic or "" for binding in node.bindings])
    return values


def job_environment(job: str, spec: JobSpec, node: NodePlan, settings: Settings, attempt: int) -> dict[str, str]:
    """How the shim, the workloads and `stop` know the job."""
    values = {
        "DLAUNCH_JOB": job,
        "DLAUNCH_DIR": node.directory,
        "DLAUNCH_NODE_RANK": str(node.node_rank),
        "DLAUNCH_ATTEMPT": str(attempt),
    }
    if spec.mesh_given:
        values["DLAUNCH_MESH"] = str(spec.mesh)
    if settings.checkpoint_directory:
        values["DLAUNCH_CHECKPOINT_DIR"] = settings.checkpoint_directory
    return values


def rank_variables(launch: NodeLaunch, rank: int, local_rank: int) -> dict[str, str]:
    """What the shim adds for one rank."""
    env = {**launch.env, "LOCAL_RANK": str(local_rank)}
    directory = JobPaths(Path(env["DLAUNCH_DIR"])).rank(rank, int(env["DLAUNCH_ATTEMPT"]))
    shim = next(word for word in launch.argv if word.endswith(SHIM))
    return rank_environment(str(directory), env, shim)


def leftovers(environment: Mapping[str, str]) -> list[str]:
    """One line for each debugging variable that is still set."""
    return [f"{name}={environment[name]} is set: it {what}" for name, what in LEFTOVERS.items() if name in environment]
