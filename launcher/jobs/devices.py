"""Which devices the nodes of a job use, in which order: placement applied to the hosts that were looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.common.binding import Binding
from launcher.errors import InputError
from launcher.jobs.request import WORKLOADS
from launcher.render import NodePlan
from launcher.spec import JobSpec, MeshSpec
from launcher.topology import HostTopology

if TYPE_CHECKING:  # imported where devices are placed: without any, a start needs none of it
    from launcher.inventory import Cluster
    from launcher.placement import Placement


@dataclass(frozen=True)
class Assignment:
    """Nodes in the order of their node ranks with their devices, the mesh as placed, and notes for the user."""

    nodes: Sequence[NodePlan]
    mesh: MeshSpec
    notes: Sequence[str] = ()
    placement: Placement | None = None


def hosts_to_take(spec: JobSpec, cluster: Cluster, candidates: Sequence[str]) -> list[str]:
    """As many of the candidates as the job has nodes: neighbours, where the inventory tells racks or switches.

    A machine simulates as many nodes as are asked for, also more than its inventory names.
    """
    if cluster.kind == "local":
        return [f"node{number}" for number in range(spec.nodes)]
    if cluster.kind != "ssh" or not any(entry.rack or entry.switch for entry in cluster.hosts):
        return list(candidates[: spec.nodes])
    from launcher.placement import place
    from launcher.topology.switches import with_inventory

    hosts = with_inventory([HostTopology(name) for name in candidates], cluster)
    return [node.host for node in place(spec.mesh, hosts, spec.nproc_per_node, axes_free=False).nodes]


def free_devices(topology: HostTopology) -> int:
    """The devices that ranks may use; none of a vendor's on whose devices we start nothing."""
    return bool(topology.visible_variable) * sum(not device.busy for device in topology.devices)


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
    bindings = bound(topology, placement.nodes[0].indexes, spec.world_size)
    placed = [
        replace(
            node,
            devices=devices[i * size : (i + 1) * size],
            visible_variable=topology.visible_variable,
            bindings=[
                replace(binding, local_rank=local) for local, binding in enumerate(bindings[i * size : (i + 1) * size])
            ],
        )
        for i, node in enumerate(nodes)
    ]
    return Assignment(placed, placement.mesh, [placement.report.verdict], placement)


def assign_on_hosts(spec: JobSpec, nodes: Sequence[NodePlan], topologies: Mapping[str, HostTopology]) -> Assignment:
    """Each node's devices, and the nodes in the order that suits the mesh. Raises InputError where they are short."""
    have = {node.host: free_devices(topologies[node.host]) for node in nodes}
    if not any(have.values()):
        bare = [replace(node, bindings=bound(topologies[node.host], (), spec.nproc_per_node)) for node in nodes]
        return Assignment(bare, spec.mesh)
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
            visible_variable=topologies[node.host].visible_variable,
            bindings=bound(topologies[node.host], node.indexes, spec.nproc_per_node),
        )
        for node_rank, node in enumerate(placement.nodes)
    ]
    return Assignment(placed, placement.mesh, [placement.report.verdict], placement)


def bound(topology: HostTopology, indexes: Sequence[int], ranks: int) -> Sequence[Binding]:
    """The binding of each local rank; none where neither devices nor NUMA nodes tell the ranks apart."""
    if not indexes and len(topology.numa_cpus) < 2:
        return ()
    from launcher.placement.binding import bind

    return bind(topology, indexes, ranks)


def reads_mesh(spec: JobSpec) -> bool:
    """Whether the script takes its axes in the order of DLAUNCH_MESH: known of the bundled workloads alone."""
    return Path(spec.script).parent == WORKLOADS
