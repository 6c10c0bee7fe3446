"""From the options of `dlaunch place` to a placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from launcher.errors import InputError
from launcher.placement.binding import Binding, bind
from launcher.placement.cluster import Network
from launcher.placement.place import place
from launcher.placement.rendezvous import order_warning
from launcher.placement.result import Placement
from launcher.spec import MeshSpec
from launcher.topology.model import HostTopology
from launcher.topology.source import network_in, topologies_in, topologies_of
from launcher.topology.switches import switch_paths, with_switches

LEFTOVER = "dp_replicate"


@dataclass(frozen=True)
class PlaceRequest:
    """The options, as typed; `nic_gbps` in Gbit/s."""

    mesh: str
    files: Sequence[Path] = ()
    switches: Path | None = None
    cluster: str | None = None
    inventory: Path | None = None
    nodes: int | None = None
    nproc_per_node: int | None = None
    axes_free: bool = False
    traffic: str | None = None
    nics_per_node: int | None = None
    nic_gbps: float | None = None
    exclude: Sequence[str] = ()


@dataclass(frozen=True)
class Answer:
    """A placement, the binding of each rank, and what a c10d rendezvous would do to it."""

    placement: Placement
    bindings: tuple[Binding, ...]
    hosts: tuple[HostTopology, ...]
    warning: str | None = None
    gaps: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what is not known, and of which hosts

    def to_json(self) -> dict[str, Any]:
        document = self.placement.to_json()
        for rank, binding in zip(document["ranks"], self.bindings, strict=True):
            rank.update(numa=binding.numa, cpus=binding.cpus, nic=binding.nic)
        return {**document, "c10d_warning": self.warning, "gaps": dict(self.gaps)}


def placed(request: PlaceRequest) -> Answer:
    """Raises InputError (options, files, a mesh that does not fit) and CannotActError (hosts that do not answer)."""
    hosts = find_hosts(request)
    mesh = MeshSpec.parse(request.mesh)
    per_node, nodes = shape(request, mesh, hosts)
    whole, leftover = with_leftover(mesh, per_node * nodes)
    per_node = whole.world_size // nodes
    placement = place(
        whole,
        hosts,
        per_node,
        request.axes_free,
        traffic=parse_traffic(request.traffic, whole),
        network=Network(request.nics_per_node, request.nic_gbps / 8 if request.nic_gbps else None),
        excluded=request.exclude,
        leftover=leftover,
    )
    by_name = {host.host: host for host in hosts}
    used = tuple(by_name[node.host] for node in placement.nodes)
    bindings = [b for node in placement.nodes for b in bind(by_name[node.host], node.indexes, per_node)]
    gaps: dict[str, list[str]] = {}
    for host in used:
        for gap in host.gaps:
            gaps.setdefault(gap, []).append(host.host)
    return Answer(placement, tuple(bindings), used, order_warning([node.host for node in placement.nodes]), gaps)


def find_hosts(request: PlaceRequest) -> list[HostTopology]:
    """From files, else from the inventory's cluster; with the network's switches where these are given."""
    if request.files:
        hosts = [host for file in request.files for host in topologies_in(file)]
        if len(hosts) == 1 and request.nodes:
            hosts = [replace(hosts[0], host=f"node{number}") for number in range(request.nodes)]
    else:
        hosts = topologies_of([], request.cluster, request.inventory)
    if len({host.host for host in hosts}) < len(hosts):
        raise InputError("two hosts have one name", where="--topo", help="give the files the names of their hosts")
    if request.switches is None:
        return hosts
    network = network_in(request.switches)
    if network is None:
        raise InputError("no switches and no blocks in it", where=str(request.switches), help="scontrol show topology")
    return with_switches(hosts, switch_paths(network))


def shape(request: PlaceRequest, mesh: MeshSpec, hosts: Sequence[HostTopology]) -> tuple[int, int]:
    """Ranks per node and number of nodes: as given, else all devices of the host that has fewest, on all hosts."""
    free = [sum(not device.busy for device in host.devices) for host in hosts]
    nodes = request.nodes or len(hosts)
    if nodes > len(hosts):
        raise InputError(f"{nodes} nodes asked for, there are {len(hosts)}", where="--nodes")
    per_node = request.nproc_per_node or min((count for count in free if count), default=0)
    if not per_node:
        per_node = max(1, mesh.world_size // nodes)
    return per_node, nodes


def with_leftover(mesh: MeshSpec, places: int) -> tuple[MeshSpec, str | None]:
    """The mesh over all places: what the given axes leave over is an outer dp_replicate. Raises InputError."""
    times = places // mesh.world_size
    if not times:
        raise InputError(f"{mesh} has {mesh.world_size} ranks, there are {places} devices", where="--mesh")
    if times == 1:
        return mesh, None
    if LEFTOVER in mesh.degrees:
        return MeshSpec({**mesh.degrees, LEFTOVER: mesh.degrees[LEFTOVER] * times}), None
    return MeshSpec({LEFTOVER: times, **mesh.degrees}), LEFTOVER


def parse_traffic(text: str | None, mesh: MeshSpec) -> dict[str, float] | None:
    """`tp=60e9,dp_shard=49e9` -> bytes by axis. Raises InputError."""
    if text is None:
        return None
    traffic = {}
    for part in text.split(","):
        axis, _, value = part.strip().partition("=")
        if axis not in mesh.degrees:
            raise InputError(f"{axis!r} is no axis of {mesh}", where="--traffic")
        try:
            traffic[axis] = float(value)
        except ValueError:
            raise InputError(f"{part!r} is not AXIS=BYTES", where="--traffic", help="for example tp=60e9") from None
    return traffic
