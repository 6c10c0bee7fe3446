"""The hardware of the job's hosts, with the ranks that sit on it and the link that limits each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import Binding, BindingType

from launcher.spec import MeshSpec
from tui.screens.text import TextScreen
from tui.snapshot import JobInfo

if TYPE_CHECKING:
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


def limits(job: JobInfo, host: HostTopology, placed: Mapping[str, int]) -> list[tuple[str, str]]:
    """(axis, words): the slowest link between neighbours of an axis on this host; axes that leave it say so."""
    device_of = {rank: name for name, rank in placed.items()}
    mesh = MeshSpec(job.mesh)
    found = []
    for axis, degree in job.mesh.items():
        if degree == 1 or mesh.world_size != job.world_size:
            continue
        groups = [group for group in mesh.groups(axis) if any(rank in device_of for rank in group)]
        if not all(rank in device_of for group in groups for rank in group):
            found.append((axis, "crosses the network"))
            continue
        pairs = [(a, b) for group in groups for a, b in zip(group, [*group[1:], group[0]], strict=True) if a != b]
        links = [(host.link(device_of[a], device_of[b]), a, b) for a, b in pairs]
        known = [(link.gbps, str(link), a, b) for link, a, b in links if link is not None]
        if known:
            _, words, a, b = min(known)
            found.append((axis, f"limited by {words} (ranks {a} and {b})"))
    return found


def host_text(job: JobInfo, host: HostTopology) -> list[str]:
    """A host's matrix, the ranks on its devices, and what limits each axis there."""
    from launcher.topology.show import host_lines

    placed = ranks_on(job, host)
    lines = host_lines(host)
    ranks = [f"{device.name} rank {placed[device.name]}" for device in host.devices if device.name in placed]
    return [
        *lines,
        *(["placement: " + "  ".join(ranks)] if ranks else []),
        *(f"⚠ {axis}: {words}" for axis, words in limits(job, host, placed)),
    ]


class TopologyScreen(TextScreen):
    """Asks the first hosts of the job for their hardware."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("t", "ask", "look again"), *TextScreen.BINDINGS]
    KEYS = ("t again", "hjkl move", "y copy", "b back", "? help")
    HELP = "⚠ marks, for each mesh axis, the slowest link that its ranks talk over."

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
