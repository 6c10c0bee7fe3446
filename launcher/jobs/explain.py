"""What a prepared job will do, in words and as JSON: the plan of `run`, the whole of `render`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from launcher.common.binding import PlannedRank
from launcher.hosts.names import fold
from launcher.jobs.prepare import Prepared
from launcher.jobs.record import RankRecord
from launcher.jobs.slurm_submit import script_text
from launcher.render import NodeLaunch, leftovers, rank_variables
from launcher.secrets import MASK, is_secret

RUNTIMES = {"CUDA_VISIBLE_DEVICES": "CUDA", "ROCR_VISIBLE_DEVICES": "ROCm"}


def plan_lines(prepared: Prepared) -> list[str]:
    """The plan in a few lines."""
    record, spec = prepared.record, prepared.spec
    devices = RUNTIMES[record.nodes[0].visible_variable] if record.nodes and record.nodes[0].devices else "CPU"
    lines = [
        f"job      {record.job}",
        f"cluster  {record.cluster}: {_nodes(prepared)}, {spec.nproc_per_node} ranks each"
        + ("" if record.kind == "slurm" else f", {devices}"),
        f"mesh     {spec.mesh} = {spec.world_size} ranks" + ("" if spec.mesh_given else " (default)"),
        f"script   {spec.script} {' '.join(spec.args)}".rstrip(),
    ]
    if record.kind != "slurm":
        lines.append(f"meet at  {prepared.rendezvous.address}:{prepared.rendezvous.port}")
    lines += [f"note     {note}" for note in prepared.notes]
    launches = prepared.launches()
    if launches:
        lines += [f"warning  {line}" for line in leftovers(launches[0].env)]
    return lines


def _nodes(prepared: Prepared) -> str:
    names = [node.host for node in prepared.record.nodes]
    return {
        "local": f"{len(names)} simulated nodes on this machine",
        "ssh": f"{len(names)} nodes: {fold(names)}",
        "slurm": f"{len(names)} nodes that Slurm chooses; their names and addresses stand as NODE0, NODE1, … below",
    }[prepared.record.kind]


def rendered(prepared: Prepared) -> dict[str, Any]:
    """The document of `render --json`: exactly what `run` would execute; secrets are masked."""
    return {
        **({"sbatch": script_text(prepared)} if prepared.script is not None else {}),
        "job": prepared.record.job,
        "cluster": prepared.record.cluster,
        "kind": prepared.record.kind,
        "mesh": prepared.record.mesh,
        "notes": list(prepared.notes),
        "nodes": [_node(launch, prepared) for launch in prepared.launches()],
        "ranks": [_rank(*pair) for pair in zip(prepared.record.ranks, prepared.record.planned_ranks(), strict=True)],
        "warnings": leftovers(prepared.launches()[0].env) if prepared.record.nodes else [],
    }


def _node(launch: NodeLaunch, prepared: Prepared) -> dict[str, Any]:
    first = launch.node_rank * prepared.spec.nproc_per_node
    return {
        "node_rank": launch.node_rank,
        "host": launch.host,
        "workdir": launch.workdir,
        "argv": list(launch.argv),
        "command_line": launch.command_line,
        "environment": [{"name": v.name, "value": v.shown, "origin": v.origin} for v in launch.environment],
        "rank_environment": {
            str(first + local): rank_variables(launch, first + local, local)
            for local in range(prepared.spec.nproc_per_node)
        },
    }


def _rank(rank: RankRecord, planned: PlannedRank) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "host": rank.host,
        "node_rank": rank.node_rank,
        "local_rank": rank.local_rank,
        "device": rank.device,
        "coordinate": dict(rank.coordinate),
        "binding": None if planned.binding is None else asdict(planned.binding),
    }


def rendered_lines(prepared: Prepared) -> Iterable[str]:
    """`render` for people: per node the command and its variables, then the mesh map."""
    yield from plan_lines(prepared)
    if prepared.script is not None:
        yield f"\nsbatch gets:\n{script_text(prepared)}"
    for launch in prepared.launches():
        yield f"\nnode {launch.node_rank} on {launch.host}, in {launch.workdir}:"
        yield f"  {launch.command_line}"
        width = max(len(variable.name) for variable in launch.environment)
        for variable in launch.environment:
            yield f"  {variable.name:{width}}  {variable.shown}  ({variable.origin})"
    yield "\neach rank, set by the shim (rank 0 shown):"
    for name, value in rank_variables(prepared.launches()[0], 0, 0).items():
        yield f"  {name}={MASK if is_secret(name) else value}"
    if prepared.record.kind == "local":
        yield "  everything else is inherited from this shell"
    yield "\nrank  host  coordinate  device, where it is, and what is near"
    for rank in prepared.record.planned_ranks():
        bound = rank.binding
        where = f"{bound.handle or 'cpu'} = {bound.line()}" if bound else "cpu"
        yield f"{rank.rank:4}  {rank.host}  {rank.coordinate}  {where}"
