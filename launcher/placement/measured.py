"""Measured links in place of seeds: α and β of a cluster, as `dlaunch bench comm` fitted and kept them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from launcher.common.paths import home, kept_name
from launcher.placement.cluster import Node, uniform
from launcher.placement.ring import bottleneck


@dataclass(frozen=True)
class MeasuredLink:
    """An all-reduce of `members` ranks: `alpha` in seconds a message, `gbps` in GB/s as busbw."""

    alpha: float
    gbps: float
    members: int


@dataclass(frozen=True)
class Measured:
    """What was measured inside a node and between nodes; None where there was nothing to measure."""

    inside: MeasuredLink | None = None
    between: MeasuredLink | None = None

    def __bool__(self) -> bool:
        return bool(self.inside or self.between)

    def alpha(self, one_node: bool) -> float:
        """Seconds a message takes in groups on one node, or across nodes; 0 where it was not measured."""
        link = self.inside if one_node else self.between
        return link.alpha if link else 0.0

    def applied(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes with measured speeds. Inside a node links keep their proportions, which one number cannot tell."""
        return [self._node(node) for node in nodes]

    def _node(self, node: Node) -> Node:
        weights, share = node.weights, node.share
        if self.inside and not node.devices:
            weights = uniform(node.slots, self.inside.gbps)
        elif self.inside and node.slots > 1:
            seed = bottleneck(node.weights, range(min(node.slots, self.inside.members)), "ring")
            scale = self.inside.gbps / seed
            weights = tuple(tuple(weight if weight == inf else weight * scale for weight in row) for row in weights)
        if self.between:
            share = self.between.gbps
        return replace(node, weights=weights, share=share)

    def note(self) -> str:
        scopes = [("inside a node", self.inside), ("between nodes", self.between)]
        known = [f"{link.gbps:.3g} GB/s and {link.alpha * 1e6:.3g} µs {where}" for where, link in scopes if link]
        return f"links are as `dlaunch bench comm` measured them: {', '.join(known)}"


UNMEASURED = Measured()


def comm_file(cluster: str, inventory: str) -> Path:
    return home() / "comm" / kept_name(cluster, inventory)


def kept_measures(cluster: str, inventory: str) -> Measured:
    """What is kept for a cluster; empty where nothing was measured or the file is damaged."""
    try:
        fits: Sequence[Mapping[str, Any]] = json.loads(comm_file(cluster, inventory).read_text())["fits"]
        links = {
            fit["scope"]: MeasuredLink(float(fit["alpha"]), float(fit["gbps"]), int(fit["members"]))
            for fit in fits
            if fit["op"] == "all_reduce" and fit["gbps"] > 0
        }
    except (OSError, ValueError, KeyError, TypeError):
        return Measured()
    return Measured(links.get("inside"), links.get("between"))
