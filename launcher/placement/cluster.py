"""The hosts as placement sees them: usable devices, bandwidth of any group of them, and what limits it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from math import inf

from launcher.hosts.names import natural
from launcher.placement.ring import Pattern, Weights, bottleneck
from launcher.topology.links import UNKNOWN_GBPS, is_direct
from launcher.topology.model import Device, HostTopology

MEMORY_GBPS = 20.0  # between processes of one host without accelerators
SWITCH_LEVEL = 0.8  # seed: what is left of a NIC's bandwidth for each level of switches above the leaf
DEFAULT_NIC_GBPS = 12.5  # GB/s, 100 Gbit/s: taken where neither the user nor the probe tells


@dataclass(frozen=True)
class Network:
    """What the command line says of the NICs of a node: their number and GB/s each; None where the probe must tell."""

    nics_per_node: int | None = None
    nic_gbps: float | None = None

    def node_gbps(self, host: HostTopology) -> float:
        """GB/s of all NICs of a host that carry traffic between nodes."""
        usable = [nic for nic in host.nics if nic.rdma and nic.up is not False] or [n for n in host.nics if n.up]
        count = self.nics_per_node or max(1, len(usable))
        rates = [nic.gbps / 8 for nic in usable if nic.gbps]
        each = self.nic_gbps or (sum(rates) / len(rates) if rates else DEFAULT_NIC_GBPS)
        return count * each

    def assumed(self, hosts: Sequence[HostTopology]) -> bool:
        """Whether the rate of some host's NICs is the default, neither given nor seen."""
        return self.nic_gbps is None and not all(any(nic.gbps for nic in host.nics) for host in hosts)


@dataclass(frozen=True)
class Node:
    """A host with the devices that ranks may use; without accelerators it has `slots` equal places.

    `rails` names the NIC nearest to each place by its rank among the host's NICs, -1 where it is not known.
    """

    host: HostTopology
    devices: tuple[Device, ...]
    slots: int
    weights: Weights
    rails: tuple[int, ...]
    share: float  # GB/s of the NICs for each rank of the node

    @property
    def name(self) -> str:
        return self.host.host

    @cached_property
    def fabric(self) -> str | None:
        """The NVLink fabric over hosts that all the devices belong to."""
        cliques = {device.fabric for device in self.devices}
        return cliques.pop() if len(cliques) == 1 else None

    @cached_property
    def fabric_gbps(self) -> float:
        direct = [link.gbps for link in self.host.device_links if is_direct(link.kind)]
        return max(direct, default=0.0)

    def link_text(self, a: int, b: int) -> str:
        if not self.devices:
            return f"memory of {self.name}"
        one, other = self.devices[a].name, self.devices[b].name
        return str(self.host.link(one, other) or f"{one}-{other} unknown")


def make_node(host: HostTopology, ranks: int, network: Network, excluded: Collection[str] = ()) -> Node:
    """The part of `host` that can carry `ranks`; busy and excluded devices (name, index, UUID) are left out."""
    devices = free_devices(host, excluded)
    slots = len(devices) if host.devices else ranks
    return Node(
        host=host,
        devices=devices,
        slots=slots,
        weights=weights_of(host, devices) if devices else uniform(slots, MEMORY_GBPS),
        rails=rails_of(host, devices) if devices else (-1,) * slots,
        share=network.node_gbps(host) / max(1, ranks),
    )


def free_devices(host: HostTopology, excluded: Collection[str] = ()) -> tuple[Device, ...]:
    """The devices that are neither busy nor excluded (by name, index or UUID)."""
    names = set(excluded)
    return tuple(
        device
        for device in host.devices
        if not device.busy and not {device.name, str(device.index), device.uuid} & names
    )


def uniform(size: int, gbps: float) -> Weights:
    return tuple(tuple(inf if a == b else gbps for b in range(size)) for a in range(size))


def weights_of(host: HostTopology, devices: Sequence[Device]) -> Weights:
    """GB/s between any two devices; an unknown path counts as the slowest kind."""
    links = {(link.a, link.b): link.gbps for link in host.device_links}
    links |= {(b, a): gbps for (a, b), gbps in links.items()}
    names = [device.name for device in devices]
    return tuple(tuple(inf if a == b else links.get((a, b), UNKNOWN_GBPS) for b in names) for a in names)


def rails_of(host: HostTopology, devices: Sequence[Device]) -> tuple[int, ...]:
    """A device's rail is the place of its only nearest NIC among the host's nearest NICs, by natural order of names."""
    nearest = {device.name: host.near_nics(device) for device in devices}
    names = {name: nics[0].label for name, nics in nearest.items() if len(nics) == 1}
    order = {nic: rail for rail, nic in enumerate(sorted(set(names.values()), key=natural))}
    return tuple(order[names[device.name]] if device.name in names else -1 for device in devices)


def twins(node: Node) -> list[int]:
    """For each place of a node the first place that it can be exchanged with without any difference."""
    first: list[int] = []
    for b in range(node.slots):
        alike = (
            a
            for a in range(b)
            if first[a] == a and interchangeable(node.weights, a, b) and node.rails[a] == node.rails[b]
        )
        first.append(next(alike, b))
    return first


def interchangeable(weights: Sequence[Sequence[float]], a: int, b: int) -> bool:
    return all(weights[a][c] == weights[b][c] for c in range(len(weights)) if c not in (a, b))


Place = tuple[int, int]  # node, position among its usable devices


@dataclass(frozen=True)
class Cluster:
    """Nodes, and what groups of places on them achieve."""

    nodes: tuple[Node, ...]

    def bandwidth(self, places: Sequence[Place], pattern: Pattern) -> float:
        """GB/s of the collective or pipeline over `places` (for a chain in this order); infinite for one place."""
        by_node: dict[int, list[int]] = {}
        for node, position in places:
            by_node.setdefault(node, []).append(position)
        if len(by_node) == 1:
            node, positions = by_node.popitem()
            return bottleneck(self.nodes[node].weights, positions, pattern)
        if pattern == "chain":
            return min(self.step(a, b) for a, b in pairwise(places))
        inside = min(bottleneck(self.nodes[node].weights, at, pattern) for node, at in by_node.items())
        return min(inside, self.between(by_node, pattern))

    def unlike(self, taken: Collection[int]) -> list[int]:
        """The nodes that are not taken, one of each set that cannot be told apart."""
        kinds: dict[int, int] = {}
        for index, kind in enumerate(self.kinds):
            if index not in taken:
                kinds.setdefault(kind, index)
        return list(kinds.values())

    @cached_property
    def kinds(self) -> list[int]:
        """For each node a number that it shares with the nodes that cannot be told from it."""
        numbers: dict[object, int] = {}
        looks = ((node.weights, node.rails, node.share, node.fabric, node.host.switches) for node in self.nodes)
        return [numbers.setdefault(look, len(numbers)) for look in looks]

    @cached_property
    def twins(self) -> list[list[int]]:
        """For each node and place the first place there that it can be exchanged with without any difference."""
        examples = dict(zip(self.kinds, self.nodes, strict=True))
        of_kind = {kind: twins(node) for kind, node in examples.items()}
        return [of_kind[kind] for kind in self.kinds]

    def look(self, places: Sequence[Place]) -> tuple[tuple[int, int, int], ...]:
        """A key that groups of the same bandwidth share: kinds of nodes and places, and which share a node."""
        order: dict[int, int] = {}
        kinds, twins = self.kinds, self.twins
        return tuple([(order.setdefault(node, len(order)), kinds[node], twins[node][at]) for node, at in places])

    def step(self, a: Place, b: Place) -> float:
        """GB/s of one pipeline edge."""
        if a[0] == b[0]:
            return self.nodes[a[0]].weights[a[1]][b[1]]
        return self.between({a[0]: [a[1]], b[0]: [b[1]]}, "chain")

    def between(self, by_node: Mapping[int, Sequence[int]], pattern: Pattern) -> float:
        """GB/s between nodes: the NICs of a group's members on its weakest node, less for every switch level."""
        fabrics = {self.nodes[node].fabric for node in by_node}
        if len(fabrics) == 1 and None not in fabrics:
            return min(self.nodes[node].fabric_gbps for node in by_node)
        width = 1 if pattern == "pairs" else min(len(positions) for positions in by_node.values())
        share = min(self.nodes[node].share for node in by_node)
        return width * share * SWITCH_LEVEL ** (self.level(by_node) + (not self.aligned(by_node)))

    def level(self, nodes: Collection[int]) -> int:
        """How many levels of switches above the leaf a group needs; 0 on one leaf or where no switch is known."""
        paths = [self.nodes[node].host.switches for node in nodes]
        depth = max(map(len, paths))
        shared = 0
        for names in zip(*paths, strict=False):
            if len(set(names)) > 1:
                break
            shared += 1
        return depth - shared

    def aligned(self, by_node: Mapping[int, Sequence[int]]) -> bool:
        """Whether the members use the same rails on every node; unknown rails count as aligned."""
        rails = [sorted(self.nodes[node].rails[at] for at in positions) for node, positions in by_node.items()]
        return any(-1 in used for used in rails) or len({tuple(used) for used in rails}) == 1

    def limit_text(self, places: Sequence[Place], pattern: Pattern) -> str:
        """The link that limits a group, for people: `GPU0-GPU2 NV4`, or the network between two hosts."""
        limit = self.bandwidth(places, pattern)
        for (n1, a), (n2, b) in combinations(places, 2):
            if n1 == n2 and self.nodes[n1].weights[a][b] == limit:
                return self.nodes[n1].link_text(a, b)
        names = list(dict.fromkeys(self.nodes[node].name for node, _ in places))
        return f"network between {names[0]} and {names[-1]}" if len(names) > 1 else "none"
