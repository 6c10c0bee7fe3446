"""What a job is: MeshSpec and JobSpec, frozen and validated once, at the edge."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from launcher.common.fields import from_fields
from launcher.errors import InputError
from workloads.common import states

AXES = states.AXES
EXPERT_AXIS = "ep"  # a second view of dp_shard x cp x tp: it divides their product and adds no ranks


@dataclass(frozen=True)
class MeshSpec:
    """The logical grid of ranks: axis -> degree, outermost first, laid out in row-major order.

    `ep`, where given, is a second view of the dp_shard x cp x tp block and does not multiply the world size.
    """

    degrees: Mapping[str, int]

    def __post_init__(self) -> None:
        for axis, degree in self.degrees.items():
            if degree < 1:
                raise InputError(f"the degree of axis {axis} must be at least 1, not {degree}", where="--mesh")
        inner = math.prod(self.degrees.get(axis, 1) for axis in ("dp_shard", "cp", "tp"))
        if inner % self.degrees.get(EXPERT_AXIS, 1):
            raise InputError(
                f"ep={self.degrees[EXPERT_AXIS]} does not divide dp_shard x cp x tp = {inner}", where="--mesh"
            )

    @classmethod
    def parse(cls, text: str, where: str = "--mesh") -> MeshSpec:
        """Read `dp_replicate=4,dp_shard=2`; raises InputError naming the part that is wrong."""
        degrees: dict[str, int] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            axis, equals, value = part.partition("=")
            if not equals or not axis.isidentifier() or not value.isascii() or not value.isdigit():
                raise InputError(f"{part!r} is not AXIS=DEGREE", where=where, help="for example dp_replicate=4,tp=2")
            if axis in degrees:
                raise InputError(f"axis {axis} is given twice", where=where)
            degrees[axis] = int(value)
        if not degrees:
            raise InputError("no axis given", where=where, help="for example dp_replicate=4,tp=2")
        return cls(degrees)

    def __str__(self) -> str:
        return ",".join(f"{axis}={degree}" for axis, degree in self.degrees.items())

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that make up the world, outermost first: all but `ep`."""
        return tuple(axis for axis in self.degrees if axis != EXPERT_AXIS)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.degrees[axis] for axis in self.axes)

    @property
    def world_size(self) -> int:
        return math.prod(self.shape)

    def coordinate(self, rank: int) -> dict[str, int]:
        """Position of `rank` in the row-major mesh: axis -> index."""
        position: dict[str, int] = {}
        for axis in reversed(self.axes):
            rank, position[axis] = divmod(rank, self.degrees[axis])
        return {axis: position[axis] for axis in self.axes}

    def groups(self, axis: str) -> list[list[int]]:
        """The rank lists that communicate along `axis`: one for each position in the other axes, in rank order."""
        stride = math.prod(self.shape[self.axes.index(axis) + 1 :])
        span = stride * self.degrees[axis]
        starts = (start for block in range(0, self.world_size, span) for start in range(block, block + stride))
        return [list(range(start, start + span, stride)) for start in starts]

    def ranks(self) -> Iterator[tuple[int, dict[str, int]]]:
        for rank in range(self.world_size):
            yield rank, self.coordinate(rank)


def format_coordinate(position: Mapping[str, int]) -> str:
    """`pp0/dp_shard1/tp3`: the way a coordinate is printed everywhere."""
    return "/".join(f"{axis}{index}" for axis, index in position.items())


@dataclass(frozen=True)
class JobSpec:
    """All that the user asked for, resolved: script and arguments, shape, restarts.

    `nodes` is the number of this attempt; an elastic job may have between `min_nodes` and `max_nodes`.
    `mesh_given` says that the user named the mesh: then the script reads it from DLAUNCH_MESH.
    """

    name: str
    script: str
    args: tuple[str, ...]
    nodes: int
    nproc_per_node: int
    mesh: MeshSpec
    mesh_given: bool = False
    min_nodes: int | None = None
    max_nodes: int | None = None
    max_restarts: int = 0
    debug_collectives: bool = False
    sync: bool = False
    torchrun: bool = True

    def __post_init__(self) -> None:
        if self.mesh.world_size != self.world_size:
            raise InputError(
                f"{self.mesh} has {self.mesh.world_size} ranks, but {self.nodes} nodes x {self.nproc_per_node} "
                f"processes are {self.world_size}",
                where="--mesh",
                help="change --mesh, --nodes or --nproc-per-node",
            )

    @property
    def world_size(self) -> int:
        return self.nodes * self.nproc_per_node

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "mesh": dict(self.mesh.degrees)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> JobSpec:
        return from_fields(cls, document, args=tuple(document["args"]), mesh=MeshSpec(document["mesh"]))
