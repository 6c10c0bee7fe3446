"""Placement of clusters of any size: nodes packed into the smallest domains, devices chosen node by node.

Inner mesh axes span few nodes and matter most, so nodes are joined bottom-up: blocks as large as the innermost
axis across nodes needs are formed under one leaf where there are enough nodes, what is left over under one
spine, and so on; then blocks of blocks for the next axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import inf

from launcher.hosts.names import natural
from launcher.placement.axes import Axis
from launcher.placement.cluster import Cluster, Node, Place
from launcher.placement.cost import Objective, evaluate
from launcher.placement.exact import EXACT_DEVICES, Search
from launcher.spec import MeshSpec
from launcher.topology.model import connected

REFINED_NODES = 16
REFINED_ROUNDS = 3

Item = tuple[tuple[str, ...], tuple[int, ...]]  # domain from the outermost in, nodes


def packed_order(nodes: Sequence[Node], mesh: MeshSpec, per_node: int) -> list[int]:
    """Indexes of the nodes to use, in rank order."""
    by_name = sorted(range(len(nodes)), key=lambda index: natural(nodes[index].name))
    items: list[Item] = [
        (path, (index,)) for index, path in zip(by_name, paths([nodes[i] for i in by_name]), strict=True)
    ]
    for size in block_sizes(mesh, per_node):
        items = pack(items, size)
    return list(items[0][1])


def paths(nodes: Sequence[Node]) -> list[tuple[str, ...]]:
    """Domains of each node: switches, then its NVLink fabric and its model of device, so that equal nodes meet.

    A fabric that spans leaves is the outermost domain, since its links are the fastest.
    """
    leaves: dict[str, set[tuple[str, ...]]] = {}
    for node in nodes:
        leaves.setdefault(node.fabric or "", set()).add(node.host.switches)
    wide = any(len(switches) > 1 for fabric, switches in leaves.items() if fabric)
    depth = max(len(node.host.switches) for node in nodes)
    found = []
    for node in nodes:
        switches = (*node.host.switches, *[""] * (depth - len(node.host.switches)))
        model = (node.devices[0].model or "") if node.devices else ""
        fabric = (node.fabric or "",)
        found.append((*fabric, *switches, model) if wide else (*switches, *fabric, model))
    return found


def block_sizes(mesh: MeshSpec, per_node: int) -> list[int]:
    """How many blocks make one of the next size, innermost axis first; their product is the number of nodes."""
    sizes, ranks, nodes = [], 1, 1
    for axis in reversed(mesh.axes):
        ranks *= mesh.degrees[axis]
        if ranks % per_node == 0 and ranks // per_node > nodes and (ranks // per_node) % nodes == 0:
            sizes.append(ranks // per_node // nodes)
            nodes = ranks // per_node
    return sizes or [1]


def pack(items: Sequence[Item], size: int) -> list[Item]:
    """Join items into blocks of `size`, each in the smallest domain that holds enough; fullest domains first."""
    blocks: list[Item] = []
    left = list(items)
    for depth in range(len(items[0][0]), -1, -1):
        domains: dict[tuple[str, ...], list[Item]] = {}
        for item in left:
            domains.setdefault(item[0][:depth], []).append(item)
        left = []
        for domain, members in sorted(domains.items(), key=lambda entry: -len(entry[1])):
            whole = len(members) - len(members) % size
            for start in range(0, whole, size):
                parts = members[start : start + size]
                blocks.append((padded(domain, len(items[0][0])), tuple(n for _, nodes in parts for n in nodes)))
            left += members[whole:]
    return blocks


def padded(domain: tuple[str, ...], depth: int) -> tuple[str, ...]:
    """A block that spans several inner domains lies in none of them."""
    return (*domain, *[f"across {'/'.join(domain)}"] * (depth - len(domain)))


def refined_order(order: list[int], nodes: int, cost: Callable[[Sequence[int]], tuple[float, ...]]) -> list[int]:
    """Exchange two nodes, or one with a spare one, as long as that is cheaper; only for few nodes."""
    if nodes > REFINED_NODES:
        return order
    spare = [node for node in range(nodes) if node not in order]
    best, line = cost(order), [*order, *spare]
    for _ in range(REFINED_ROUNDS):
        before = best
        for a, b in combinations(range(len(line)), 2):
            if a < len(order):
                line[a], line[b] = line[b], line[a]
                if (now := cost(line[: len(order)])) < best:
                    best = now
                else:
                    line[a], line[b] = line[b], line[a]
        if best == before:
            break
    return line[: len(order)]


@dataclass
class DeviceChooser:
    """Chooses the order of devices on each node; nodes and meshes that look alike share one answer."""

    cluster: Cluster
    per_node: int
    objective: Objective
    _answers: dict[object, list[int]] = field(default_factory=dict)

    def places(self, axes: Sequence[Axis], order: Sequence[int]) -> list[Place]:
        """The place of each rank on nodes in `order`.

        Where a node has the same rails at other positions than the first one, the answer is carried over by rails, so
        that groups across nodes pair equal NICs.
        """
        local = local_axes(axes, len(order), self.per_node)
        rails: dict[object, list[int]] = {}
        found: list[Place] = []
        for axes_here, index in zip(local, order, strict=True):
            node = self.cluster.nodes[index]
            positions = self.positions(axes_here, node, rails.get(axes_here, []))
            rails.setdefault(axes_here, [node.rails[at] for at in positions])
            found += [(index, at) for at in positions]
        return found

    def positions(self, axes: tuple[Axis, ...], node: Node, rails: Sequence[int]) -> list[int]:
        """Positions of a node's devices in local-rank order, on the given rails where these are as good."""
        search = Search(Cluster((node,)), axes, self.per_node, self.per_node, self.objective)
        kind = (axes, node.weights, node.rails)
        if kind not in self._answers:
            self._answers[kind] = node_positions(search, node)
        return on_rails(search, node, rails, self._answers[kind])


def local_axes(axes: Sequence[Axis], blocks: int, per_node: int) -> list[tuple[Axis, ...]]:
    """For each block of ranks the parts of the axes' groups that meet on its node, in local ranks."""
    found: list[list[Axis]] = [[] for _ in range(blocks)]
    for axis in axes:
        parts: dict[int, list[tuple[int, ...]]] = {}
        for group in axis.groups:
            local: dict[int, list[int]] = {}
            for rank in group:
                local.setdefault(rank // per_node, []).append(rank % per_node)
            for block, ranks in local.items():
                if len(ranks) > 1:
                    parts.setdefault(block, []).append(tuple(ranks))
        for block, groups in parts.items():
            found[block].append(replace(axis, groups=tuple(groups)))
    return [tuple(local) for local in found]


def node_positions(search: Search, node: Node) -> list[int]:
    """Positions of a node's devices in local-rank order: exact for up to 16 devices, packed by their links above."""
    if not search.axes:
        return list(range(search.ranks))
    if node.slots <= EXACT_DEVICES:
        return [at for _, at in search.best()]
    items: list[Item] = [(path, (at,)) for at, path in enumerate(link_domains(node))]
    for size in (axis.degree for axis in search.axes):
        items = pack(items, size) if len(items) >= size else items
    packed = [at for _, group in items for at in group]
    return [*packed, *(at for at in range(node.slots) if at not in packed)][: search.ranks]


def link_domains(node: Node) -> list[tuple[str, ...]]:
    """For each device the sets it is joined to by links of at least each bandwidth, slowest (largest set) first."""
    levels = sorted({weight for row in node.weights for weight in row if weight < inf})
    found: list[list[str]] = [[] for _ in range(node.slots)]
    for level in levels:
        pairs = [(a, b) for a in range(node.slots) for b in range(a) if node.weights[a][b] >= level]
        for group in connected(range(node.slots), pairs):
            for at in group:
                found[at].append(str(group[0]))
    return [tuple(path) for path in found]


def on_rails(search: Search, node: Node, rails: Sequence[int], best: list[int]) -> list[int]:
    """`best`, or the positions that follow `rails` where these are as good."""
    at_rail = {rail: at for at, rail in enumerate(node.rails)}
    if -1 in at_rail or len(at_rail) < node.slots or not rails or not set(rails) <= at_rail.keys():
        return best
    carried = [at_rail[rail] for rail in rails]
    keys = [search.objective.key(evaluate(search.cluster, search.axes, [(0, at) for at in p])) for p in (carried, best)]
    return carried if keys[0] <= keys[1] else best
