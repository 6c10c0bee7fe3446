"""From the options of `dlaunch place` to a placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from launcher.common.binding import Binding
from launcher.errors import InputError
from launcher.inventory import load_inventory
from launcher.placement.binding import bind
from launcher.placement.cluster import Network, free_devices
from launcher.placement.cost import Volume
from launcher.placement.measured import Measured, kept_measures
from launcher.placement.place import place
from launcher.placement.rendezvous import order_warning
from launcher.placement.result import Placement
from launcher.placement.traffic import of_model, parse_traffic
from launcher.spec import MeshSpec
from launcher.topology.model import HostTopology
from launcher.topology.source import network_in, topologies_in, topologies_of
from launcher.topology.switches import switch_paths, with_switches
from workloads.common.config import PRESETS

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
    batch: int | None = None
    seq: int = 4096
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
    traffic, source = traffic_of(request, whole)
    placement = place(
        whole,
        hosts,
        per_node,
        request.axes_free,
        traffic=traffic,
        measured=measured_links(request),
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
    placement = replace(placement, report=replace(placement.report, notes=(*placement.report.notes, *source)))
    return Answer(placement, tuple(bindings), used, order_warning([node.host for node in placement.nodes]), gaps)


def traffic_of(request: PlaceRequest, mesh: MeshSpec) -> tuple[dict[str, Volume] | None, list[str]]:
    """What is sent by axis, and where that is known from. Raises InputError and CannotActError."""
    text = request.traffic
    if request.batch and text not in PRESETS:
        raise InputError("it is for the traffic of a preset", where="--batch", help="--traffic 8B, for example")
    if text is None or "=" in text:
        return (None if text is None else parse_traffic(text, mesh)), []
    if text in PRESETS:
        return of_model(text, mesh, request.batch, request.seq), [f"traffic of the bundled workload with preset {text}"]
    from launcher.placement.dumps import counted_in_job

    counted = counted_in_job(text)
    sent = counted.on(mesh)
    axes = ", ".join(f"{axis} {volume.bytes:.4g} bytes" for axis, volume in sent.items())
    return sent, [f"traffic as {counted.ranks} ranks of {counted.job} sent it in a step: {axes or 'none'}"]


def measured_links(request: PlaceRequest) -> Measured:
    """What `dlaunch bench comm` kept of the cluster; of saved outputs nothing is known."""
    if request.files:
        return Measured()
    inventory, file = load_inventory(request.inventory)
    return kept_measures(inventory.cluster(request.cluster)[0], file)


def find_hosts(request: PlaceRequest) -> list[HostTopology]:
    """From files, else from the inventory's cluster; with the network's switches where these are given."""
    if request.files:
        if request.cluster or request.inventory:
            raise InputError("the files tell the hosts", where="--topo", help="leave out --cluster and --inventory")
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
    """Ranks per node and number of nodes: as given; of the rest what keeps groups of the innermost axis whole on their
    nodes, then uses most devices, then most nodes. Hosts may have unequal numbers of free devices."""
    if request.nodes and request.nodes > len(hosts):
        raise InputError(f"{request.nodes} nodes asked for, there are {len(hosts)}", where="--nodes")
    free = [
        count for host in hosts if host.host not in request.exclude and (count := free_count(host, request.exclude))
    ]
    if not free:  # without accelerators
        nodes = request.nodes or len(hosts)
        return request.nproc_per_node or max(1, mesh.world_size // nodes), nodes
    inner = next((mesh.degrees[axis] for axis in reversed(mesh.axes) if mesh.degrees[axis] > 1), 1)
    shapes = [
        (per_node, nodes)
        for per_node in ([request.nproc_per_node] if request.nproc_per_node else range(1, max(free) + 1))
        for nodes in ([request.nodes] if request.nodes else range(1, sum(count >= per_node for count in free) + 1))
        if per_node * nodes % mesh.world_size == 0
    ]
    possible = [found for found in shapes if sum(count >= found[0] for count in free) >= found[1]]
    if possible:
        return max(possible, key=lambda found: (cut(inner, found[0]), found[0] * found[1], found[1]))
    return request.nproc_per_node or min(free), request.nodes or len(hosts)


def cut(degree: int, per_node: int) -> int:
    """2 where groups of consecutive ranks lie whole on nodes, 1 where they take up whole nodes, else 0."""
    return 2 if per_node % degree == 0 else int(degree % per_node == 0)


def free_count(host: HostTopology, excluded: Sequence[str]) -> int:
    """The devices of a host that ranks may use."""
    return len(free_devices(host, [item.removeprefix(f"{host.host}:") for item in excluded]))


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
