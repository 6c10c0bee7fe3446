"""What placement answers: which rank on which device of which host, and what that is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from launcher.placement.axes import groups_of
from launcher.placement.cost import AxisCost
from launcher.spec import MeshSpec

NO_GAIN = 1.02  # below this ratio index order is kept


@dataclass(frozen=True)
class PlacedNode:
    """A host with its devices in local-rank order: UUIDs (or indexes where no UUID is known) and vendor indexes.

    Both are empty on a host without accelerators.
    """

    host: str
    devices: tuple[str, ...] = ()
    indexes: tuple[int, ...] = ()


@dataclass(frozen=True)
class AxisReport:
    """One axis: GB/s of its slowest group in index order, as placed, and at best; what limits it as placed."""

    axis: str
    index_order_gbps: float
    chosen_gbps: float
    bound_gbps: float
    limit: AxisCost


@dataclass(frozen=True)
class Report:
    """Costs in `unit`: seconds per GB of `axis`, or with traffic seconds per step over all axes (`axis` is None).

    `limiting` is the slowest named axis; `gain` is index order's cost over the chosen one's on `gaining_axis`, or of
    the whole step; `exact` tells whether the result is proven best among what torchrun can express; `notes` are
    assumptions and hints for a person.
    """

    unit: str
    index_order: float
    chosen: float
    lower_bound: float
    axis: str | None
    limiting: AxisCost | None
    gain: float
    gaining_axis: str | None
    axes: tuple[AxisReport, ...]
    exact: bool
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """`no gain` below 2 %, else the factor over index order."""
        if self.gain < NO_GAIN:
            return "no gain over index order, which is kept"
        return f"{self.gaining_axis or 'a step'} is {self.gain:.2f} times faster than in index order"


@dataclass(frozen=True)
class Placement:
    """`mesh` with its axes in the chosen order, and the nodes in rank order."""

    mesh: MeshSpec
    nodes: tuple[PlacedNode, ...]
    nproc_per_node: int
    report: Report

    def node_of(self, rank: int) -> PlacedNode:
        return self.nodes[rank // self.nproc_per_node]

    def index_of(self, rank: int) -> int:
        """Vendor index of the rank's device; its local rank on a host without accelerators."""
        local = rank % self.nproc_per_node
        return self.node_of(rank).indexes[local] if self.node_of(rank).indexes else local

    def uuid_of(self, rank: int) -> str | None:
        """UUID of the rank's device; None without accelerators and where no UUID is known."""
        devices = self.node_of(rank).devices
        handle = devices[rank % self.nproc_per_node] if devices else ""
        return None if not handle or handle.isdigit() else handle

    def to_json(self) -> dict[str, Any]:
        """The document of `dlaunch place` (DESIGN §5), without `schema`."""
        limiting = self.report.limiting
        return {
            "axes": list(self.mesh.axes),
            "ranks": [
                {
                    "rank": rank,
                    "host": self.node_of(rank).host,
                    "device": self.index_of(rank),
                    "uuid": self.uuid_of(rank),
                    "coordinate": coordinate,
                }
                for rank, coordinate in self.mesh.ranks()
            ],
            "groups": self.groups(),
            "cost": {
                "index_order": self.report.index_order,
                "chosen": self.report.chosen,
                "lower_bound": self.report.lower_bound,
                "unit": self.report.unit,
                "axis": self.report.axis,
            },
            "limiting": {"axis": limiting.axis, "link": limiting.link} if limiting else {"axis": None, "link": None},
            "gain": self.report.gain,
            "exact": self.report.exact,
            "axis_gbps": [asdict(axis) for axis in self.report.axes],
            "notes": list(self.report.notes),
        }

    def groups(self) -> Mapping[str, list[list[int]]]:
        """Groups by axis: device indexes on one host, ranks on several."""
        one = len(self.nodes) == 1
        return {
            axis: [[self.index_of(rank) if one else rank for rank in group] for group in groups_of(self.mesh, axis)]
            for axis in self.mesh.degrees
        }
