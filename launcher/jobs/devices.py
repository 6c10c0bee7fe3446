"""Which devices the nodes of a job use, in which order: placement applied to the hosts that were looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import InputError
from launcher.render import NodePlan
from launcher.spec import JobSpec, MeshSpec
from launcher.topology import HostTopology

if TYPE_CHECKING:
    from launcher.jobs.request import WORKLOADS
from launcher.placement import Placement  # imported where devices are placed: without any, a start needs none of it


@dataclass(frozen=True)
class Assignment:
    """Nodes in the order of their node ranks with their devices, the mesh as placed, and notes for the user."""

    nodes: Sequence[NodePlan]
    mesh: MeshSpec
    notes: Sequence[str] = ()
    placement: Placement | None = None


def free_devices(topology: HostTopology) -> int:
    return sum(not device.busy for device in topology.devices)


def assign_on_one_machine(spec: JobSpec, nodes: Sequence[NodePlan], topology: HostTopology) -> Assignment:
    """Simulated nodes share this machine's devices, where there are enough; else all ranks run on the CPU."""
    have = free_devices(topology)
    if have < spec.world_size:
        note = f"this machine has {have} free devices for {spec.world_size} ranks, so they run on the CPU"
        return Assignment([replace(node, hide_devices=have > 0) for node in nodes], spec.mesh, [note] if have else [])
    from launcher.placement import place

    placement = place(spec.mesh, [topology], spec.world_size, axes_free=reads_mesh(spec))
    devices = placement.nodes[0].devices
    size = spec.nproc_per_node
    cpus = cpu_sets(topology, placement.nodes[0].indexes)
    placed = [
        replace(node, devices=devices[i * size : (i + 1) * size], cpu_sets=cpus[i * size : (i + 1) * size])
        for i, node in enumerate(nodes)
    ]
    return Assignment(placed, placement.mesh, [placement.report.verdict], placement)


def assign_on_hosts(spec: JobSpec, nodes: Sequence[NodePlan], topologies: Mapping[str, HostTopology]) -> Assignment:
    """Each node's devices, and the nodes in the order that suits the mesh. Raises InputError where they are short."""
    have = {node.host: free_devices(topologies[node.host]) for node in nodes}
    if not any(have.values()):
        return Assignment(nodes, spec.mesh)
    for host, count in have.items():
        if count < spec.nproc_per_node:
            raise InputError(
                f"{host} has {count} free devices for {spec.nproc_per_node} ranks",
                where="--nproc-per-node",
                help=f"--exclude {host}, or fewer ranks; dlaunch nodes shows who is free",
            )
    from launcher.placement import place

    placement = place(
        spec.mesh, [topologies[node.host] for node in nodes], spec.nproc_per_node, axes_free=reads_mesh(spec)
    )
    plans = {node.host: node for node in nodes}
    placed = [
        replace(
            plans[node.host],
            node_rank=node_rank,
            devices=node.devices,
            cpu_sets=cpu_sets(topologies[node.host], node.indexes),
        )
        for node_rank, node in enumerate(placement.nodes)
    ]
    return Assignment(placed, placement.mesh, [placement.report.verdict], placement)


def cpu_sets(topology: HostTopology, indexes: Sequence[int]) -> list[list[int]]:
    """The CPUs near each of these devices, in their order; an empty list where the hardware does not tell."""
    from launcher.placement.binding import bind, parse_cpus

    return [parse_cpus(binding.cpus or "") for binding in bind(topology, indexes, len(indexes))]


def reads_mesh(spec: JobSpec) -> bool:
    """Whether the script takes its axes in the order of DLAUNCH_MESH: known of the bundled workloads alone."""
    return Path(spec.script).parent == WORKLOADS
