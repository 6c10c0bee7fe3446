"""The hardware of the job's hosts, with the ranks that sit on it and the link that limits each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import Binding, BindingType

from launcher.hosts.names import fold_numbers
from tui.screens.text import TextScreen
from tui.snapshot import JobInfo

if TYPE_CHECKING:
    from launcher.placement.cluster import Cluster, Place
    from launcher.topology.model import HostTopology

_MOST_HOSTS = 4


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
    from launcher.placement.axes import axes_of
    from launcher.placement.cost import explain, slowest

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
    from launcher.placement.cluster import Cluster, Network, make_node

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
    from launcher.topology.show import host_lines

    placed = ranks_on(job, host)
    ranks = [f"{device.name} rank {placed[device.name]}" for device in host.devices if device.name in placed]
    return [*host_lines(host), *(["placement: " + "  ".join(ranks)] if ranks else [])]


class TopologyScreen(TextScreen):
    """Asks the first hosts of the job for their hardware."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("t", "ask", "look again"), *TextScreen.BINDINGS]
    KEYS = ("t again", "hjkl move", "y copy", "b back", "? help")
    HELP = "⚠ marks, for each mesh axis, the link that limits its slowest group."

    def action_ask(self) -> None:
        snapshot = self.top.snapshot
        if snapshot is not None:
            self.say(f"asking {', '.join(snapshot.job.hosts[:_MOST_HOSTS])}…")
            self._look(snapshot.job)

    @work(thread=True, exclusive=True, group="topology")
    def _look(self, job: JobInfo) -> None:
        lines = self.top.topology(job, job.hosts[:_MOST_HOSTS])
        self.app.call_from_thread(self._set, job, lines)

    def _set(self, job: JobInfo, lines: Sequence[str]) -> None:
        self.put(lines)
        more = len(job.hosts) - _MOST_HOSTS
        self.say(f"topology · {more} more hosts: dlaunch topo HOST" if more > 0 else "topology")

    def command(self) -> list[str]:
        hosts = self.top.snapshot.job.hosts if self.top.snapshot else ()
        return ["dlaunch", "topo", *hosts[:1]]
