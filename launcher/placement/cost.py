"""What an assignment of ranks to places costs: for every axis its slowest group, which gates all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from launcher.placement.axes import Axis
from launcher.placement.cluster import Cluster, Place

Key = tuple[float, ...]


@dataclass(frozen=True)
class AxisCost:
    """The slowest group of one axis: its GB/s, ranks, and the link that limits it."""

    axis: str
    gbps: float
    ranks: tuple[int, ...]
    link: str


@dataclass(frozen=True)
class Objective:
    """How costs of several axes are compared.

    Without traffic: lexicographically, in the axes' order. With traffic (bytes sent per rank and step, by axis): by the
    sum of seconds.
    """

    traffic: Mapping[str, float] | None = None

    def key(self, gbps: Mapping[str, float]) -> Key:
        """A tuple that is smaller for a better placement; `gbps` by axis, in the axes' order."""
        seconds = tuple(self.seconds(axis, value) for axis, value in gbps.items())
        return seconds if self.traffic is None else (sum(seconds),)

    def seconds(self, axis: str, gbps: float) -> float:
        """Seconds of one axis per step; without traffic, seconds per GB."""
        return (1.0 if self.traffic is None else self.traffic.get(axis, 0.0) / 1e9) / gbps


def slowest(cluster: Cluster, axis: Axis, places: Sequence[Place]) -> tuple[float, tuple[int, ...]]:
    """GB/s and ranks of the slowest group of `axis` when rank r is at places[r]; the first of equals.

    Groups that look alike from inside (same kind of host, same positions) are computed once.
    """
    worst, ranks = inf, axis.groups[0]
    seen: dict[object, float] = {}
    for group in axis.groups:
        at = [places[rank] for rank in group]
        node = at[0][0]
        shape = (cluster.nodes[node].weights, *(p for _, p in at)) if all(n == node for n, _ in at) else None
        if shape is None:
            value = cluster.bandwidth(at, axis.pattern)
        elif (cached := seen.get(shape)) is not None:
            value = cached
        else:
            value = seen[shape] = cluster.bandwidth(at, axis.pattern)
        if value < worst:
            worst, ranks = value, group
    return worst, ranks


def evaluate(cluster: Cluster, axes: Sequence[Axis], places: Sequence[Place]) -> dict[str, float]:
    """GB/s of the slowest group by axis, in the axes' order."""
    return {axis.name: slowest(cluster, axis, places)[0] for axis in axes}


def explain(cluster: Cluster, axes: Sequence[Axis], places: Sequence[Place]) -> tuple[AxisCost, ...]:
    """The cost of each axis with the group and the link that limit it."""
    costs = []
    for axis in axes:
        gbps, ranks = slowest(cluster, axis, places)
        link = cluster.limit_text([places[rank] for rank in ranks], axis.pattern)
        costs.append(AxisCost(axis.name, gbps, ranks, link))
    return tuple(costs)
