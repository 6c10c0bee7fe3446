"""Lower bounds: what an axis could reach if nothing but the hardware restrained it."""

from __future__ import annotations

from collections import Counter
from math import ceil, inf

from launcher.placement.axes import Axis
from launcher.placement.cluster import SWITCH_LEVEL, Cluster, Node
from launcher.placement.exact import EXACT_DEVICES, alone


def best_possible(cluster: Cluster, axis: Axis, per_node: int) -> float:
    """GB/s that no placement of the axis' groups can exceed, whatever the other axes need.

    Exact for up to 16 devices. Above: a group inside a host reaches what the best host gives, one across hosts at most
    all NICs of a host, over no more switch levels than its number of hosts needs.
    """
    if sum(node.slots for node in cluster.nodes) <= EXACT_DEVICES:
        return alone(cluster, axis.degree, len(axis.groups), axis.pattern)
    kinds = {(node.weights, node.share, node.fabric): node for node in cluster.nodes}.values()
    inside = max((inside_one(node, axis, per_node) for node in kinds), default=0.0)
    hosts = ceil(axis.degree / per_node)
    nics = (
        max(node.share for node in kinds) * min(axis.degree, per_node) * SWITCH_LEVEL ** fewest_levels(cluster, hosts)
    )
    across = max(nics, max(node.fabric_gbps if node.fabric else 0.0 for node in kinds))
    return max(inside, across) if hosts == 1 else across


def inside_one(node: Node, axis: Axis, per_node: int) -> float:
    """GB/s of the axis on one kind of host: exact for up to 16 devices, else its fastest link."""
    if axis.degree > per_node:
        return 0.0
    if node.slots <= EXACT_DEVICES:
        return alone(Cluster((node,)), axis.degree, per_node // axis.degree, axis.pattern)
    return max(weight for row in node.weights for weight in row if weight < inf)


def fewest_levels(cluster: Cluster, hosts: int) -> int:
    """Switch levels above the leaf that a group of so many hosts cannot avoid."""
    paths = [node.host.switches for node in cluster.nodes]
    depth = max(map(len, paths))
    for level in range(depth):
        sizes = Counter(path[: depth - level] for path in paths)
        if max(sizes.values()) >= hosts:
            return level
    return depth
