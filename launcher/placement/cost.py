"""What an assignment of ranks to places costs: for every axis its slowest group, which gates all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
class Volume:
    """What a rank sends on one axis in a step: bytes, and how many messages one after the other."""

    bytes: float
    messages: float = 0.0


@dataclass(frozen=True)
class Objective:
    """How costs of several axes are compared.

    Without traffic: lexicographically, in the axes' order. With traffic by axis: by the sum of seconds, with `alpha`
    seconds for each message of an axis.
    """

    traffic: Mapping[str, Volume] | None = None
    alpha: Mapping[str, float] = field(default_factory=dict)

    def key(self, gbps: Mapping[str, float]) -> Key:
        """A tuple that is smaller for a better placement; `gbps` by axis, in the axes' order."""
        seconds = tuple(self.seconds(axis, value) for axis, value in gbps.items())
        return seconds if self.traffic is None else (sum(seconds),)

    def seconds(self, axis: str, gbps: float) -> float:
        """Seconds of one axis per step, messages · α + bytes · β; without traffic, seconds per GB."""
        if self.traffic is None:
            return 1.0 / gbps
        sent = self.traffic.get(axis, Volume(0.0))
        return sent.messages * self.alpha.get(axis, 0.0) + sent.bytes / 1e9 / gbps


@dataclass(frozen=True)
class Slowest:
    """The slowest group of one axis, the first of equals: its GB/s and ranks."""

    gbps: float
    ranks: tuple[int, ...]


def slowest(cluster: Cluster, axis: Axis, places: Sequence[Place]) -> Slowest:
    """The slowest group of `axis` when rank r is at places[r]; groups that look alike are computed once."""
    worst = Slowest(inf, axis.groups[0])
    seen: dict[object, float] = {}
    for group in axis.groups:
        at = [places[rank] for rank in group]
        look = cluster.look(at)
        if (gbps := seen.get(look)) is None:
            gbps = seen[look] = cluster.bandwidth(at, axis.pattern)
        if gbps < worst.gbps:
            worst = Slowest(gbps, group)
    return worst


def evaluate(cluster: Cluster, axes: Sequence[Axis], places: Sequence[Place]) -> dict[str, float]:
    """GB/s of the slowest group by axis, in the axes' order."""
    return {axis.name: slowest(cluster, axis, places).gbps for axis in axes}


def explain(cluster: Cluster, axis: Axis, group: Slowest, places: Sequence[Place]) -> AxisCost:
    """The cost of an axis with the link that limits its slowest group."""
    link = cluster.limit_text([places[rank] for rank in group.ranks], axis.pattern)
    return AxisCost(axis.name, group.gbps, group.ranks, link)
