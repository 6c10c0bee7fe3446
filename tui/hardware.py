"""The hardware of a job's hosts as text: what is there, which ranks sit on it, which link limits each axis.

Imported when it is asked for: it needs what places ranks and what reaches hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from launcher.errors import InputError
from launcher.hosts.names import fold_numbers
from launcher.jobs.reach import connect_each
from launcher.jobs.record import JobRecord
from launcher.placement.axes import axes_of
from launcher.placement.cluster import Cluster, Network, Place, make_node
from launcher.placement.cost import explain, slowest
from launcher.topology.model import HostTopology
from launcher.topology.probe import probe_all
from launcher.topology.show import host_lines
from tui.snapshot import JobInfo


def topology_lines(record: JobRecord, job: JobInfo, hosts: Sequence[str]) -> list[str]:
    """What limits each axis, and each host's matrix with its ranks; a host that fails says so in its place."""
    names = list(dict.fromkeys(hosts))
    try:
        connected = connect_each(names, record.addresses)
    except InputError as error:  # of the user's SSH configuration
        return [str(error)]
    try:
        seen = probe_all(list(connected.good.values()))
    finally:
        for host in connected.good.values():
            host.close()
    failed = connected.failed | seen.failed
    about = {name: host_text(job, host) for name, host in seen.good.items()}
    lines = [line for name in names for line in about.get(name) or ["", f"{name}: {failed[name]}"]]
    return [*limits(job, list(seen.good.values())), *lines]


def ranks_on(job: JobInfo, host: HostTopology) -> dict[str, int]:
    """Device name → rank: by UUID, or in the order of local ranks where the job names no devices."""
    node = list(job.hosts).index(host.host)
    mine = job.ranks_on(node)
    by_uuid = {job.devices[rank]: rank for rank in mine if rank < len(job.devices) and job.devices[rank]}
    if by_uuid:
        return {device.name: by_uuid[device.uuid] for device in host.devices if device.uuid in by_uuid}
    return {device.name: rank for device, rank in zip(host.devices, mine, strict=False)}


def limits(job: JobInfo, hosts: Sequence[HostTopology]) -> list[str]:
    """For each axis the slowest of its groups that lie on these hosts, and the link that limits it."""
    if job.layout is None:
        return []
    cluster, places = _places(job, hosts)
    at = [places.get(rank, (0, 0)) for rank in range(job.world_size)]
    lines = []
    for axis in axes_of(job.layout):
        groups = tuple(group for group in axis.groups if places.keys() >= set(group))
        if not groups:
            lines.append(f"⚠ {axis.name}: reaches hosts that were not asked")
            continue
        seen = replace(axis, groups=groups)
        cost = explain(cluster, seen, slowest(cluster, seen, at), at)
        lines.append(f"⚠ {axis.name}: {cost.link} gives ranks {fold_numbers(cost.ranks)} {cost.gbps:.3g} GB/s")
    return lines


def _places(job: JobInfo, hosts: Sequence[HostTopology]) -> tuple[Cluster, dict[int, Place]]:
    """The hosts as the cost model of placement has them, and where each rank sits."""
    nodes = []
    places: dict[int, Place] = {}
    for number, host in enumerate(hosts):
        ours = job.ranks_on(list(job.hosts).index(host.host))
        own = replace(host, devices=tuple(replace(device, busy=False) for device in host.devices))  # busy with this job
        node = make_node(own, len(ours), Network())
        position = {device.name: index for index, device in enumerate(node.devices)}
        on = {rank: position[name] for name, rank in ranks_on(job, host).items()}
        places |= {rank: (number, on.get(rank, index)) for index, rank in enumerate(ours) if index < node.slots}
        nodes.append(node)
    return Cluster(tuple(nodes)), places


def host_text(job: JobInfo, host: HostTopology) -> list[str]:
    """A host's matrix, and the ranks on its devices."""
    placed = ranks_on(job, host)
    ranks = [f"{device.name} rank {placed[device.name]}" for device in host.devices if device.name in placed]
    return [*host_lines(host), *(["placement: " + "  ".join(ranks)] if ranks else [])]
