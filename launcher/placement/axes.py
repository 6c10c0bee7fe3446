"""The mesh as groups of ranks, one list for each axis, and the order in which axes matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.placement.ring import Pattern
from launcher.spec import AXES, EXPERT_AXIS, MeshSpec

# By what an axis exposes: tensor parallelism first (every layer, nothing to hide behind), pipeline edges last.
PRIORITY = ("tp", "cp", "ep", "dp_shard", "dp_replicate", "pp")
PATTERNS: Mapping[str, Pattern] = {"pp": "chain", EXPERT_AXIS: "pairs"}


@dataclass(frozen=True)
class Axis:
    """One axis: how its groups communicate, and their ranks in mesh order."""

    name: str
    pattern: Pattern
    groups: tuple[tuple[int, ...], ...]

    @property
    def degree(self) -> int:
        return len(self.groups[0])

    @property
    def even(self) -> bool:
        """Whether all groups have the same size; parts of groups on one node may not."""
        return len({len(group) for group in self.groups}) == 1


def axes_of(mesh: MeshSpec, last: str | None = None) -> tuple[Axis, ...]:
    """The axes of degree above one, the most demanding first; `last` names one to put behind all others."""
    names = ordered_names(mesh, last)
    return tuple(Axis(name, pattern_of(name, mesh.degrees[name]), groups_of(mesh, name)) for name in names)


def ordered_names(mesh: MeshSpec, last: str | None) -> list[str]:
    """Names of the axes of degree above one, the most demanding first, `last` behind all."""
    names = [name for name, degree in mesh.degrees.items() if degree > 1]
    return sorted(names, key=lambda name: (name == last, rank_of(name), -list(mesh.degrees).index(name)))


def pattern_of(name: str, degree: int) -> Pattern:
    """How groups of an axis communicate; for two members all patterns are the same."""
    return "ring" if degree == 2 else PATTERNS.get(name, "ring")


def rank_of(name: str) -> int:
    """Place in PRIORITY; an axis that we do not know comes after sharding."""
    return PRIORITY.index(name) if name in PRIORITY else PRIORITY.index("dp_replicate")


def groups_of(mesh: MeshSpec, name: str) -> tuple[tuple[int, ...], ...]:
    """Ranks of each group; experts take consecutive ranks of the dp_shard x cp x tp block (torchtitan's view)."""
    if name != EXPERT_AXIS:
        return tuple(tuple(group) for group in mesh.groups(name))
    degree = mesh.degrees[EXPERT_AXIS]
    return tuple(tuple(range(start, start + degree)) for start in range(0, mesh.world_size, degree))


def megatron_order(mesh: MeshSpec) -> MeshSpec:
    """The same degrees in Megatron's order: tp innermost, then cp, data, and pp outermost; other axes stay outside."""
    known = [axis for axis in AXES if axis in mesh.degrees]
    others = [axis for axis in mesh.degrees if axis not in AXES]
    return MeshSpec({axis: mesh.degrees[axis] for axis in (*others, *known)})


def in_order(mesh: MeshSpec, names: Sequence[str]) -> MeshSpec:
    """The same degrees with the axes that make up the world in another order."""
    rest = [axis for axis in mesh.degrees if axis not in names]
    return MeshSpec({axis: mesh.degrees[axis] for axis in (*names, *rest)})
