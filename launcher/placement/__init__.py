"""Which rank goes on which device: cost of groups on links, and search for the best order."""

from __future__ import annotations

from launcher.placement.cluster import Network
from launcher.placement.place import place
from launcher.placement.result import PlacedNode, Placement, Report

__all__ = ["Network", "PlacedNode", "Placement", "Report", "place"]
