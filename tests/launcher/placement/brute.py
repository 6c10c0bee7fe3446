"""The oracle: every assignment, evaluated by definitions of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, pairwise, permutations, product
from math import inf

from launcher.placement.axes import PRIORITY
from launcher.spec import MeshSpec
from launcher.topology import HostTopology

Place = tuple[int, int]
LEVEL = 0.8


@cache
def cached_groups(shape: tuple[tuple[str, int], ...]) -> list[tuple[bool, list[list[int]]]]:
    mesh = MeshSpec(dict(shape))
    names = sorted((n for n in mesh.axes if mesh.degrees[n] > 1), key=PRIORITY.index)
    return [(name == "pp", mesh.groups(name)) for name in names]


def groups_of(mesh: MeshSpec) -> list[tuple[bool, list[list[int]]]]:
    """For each axis, the most demanding first: whether its order counts, and its groups."""
    return cached_groups(tuple(mesh.degrees.items()))


class Oracle:
    """Bandwidths of groups of places on `hosts`, each with `per_node` ranks."""

    def __init__(self, hosts: Sequence[HostTopology], per_node: int) -> None:
        self.hosts = hosts
        self.per_node = per_node
        self.group = cache(self._group)

    def link(self, host: int, a: int, b: int) -> float:
        devices = self.hosts[host].devices
        found = self.hosts[host].link(devices[a].name, devices[b].name)
        assert found is not None
        return found.gbps

    def ring(self, host: int, members: tuple[int, ...]) -> float:
        """By all cyclic orders."""
        if len(members) < 2:
            return inf
        first, *rest = members
        return max(
            min(self.link(host, a, b) for a, b in zip((first, *order), (*order, first), strict=True))
            for order in permutations(rest)
        )

    def _group(self, places: tuple[Place, ...], chain: bool) -> float:
        if chain:
            return min((self._group((a, b), False) for a, b in pairwise(places)), default=inf)
        by_host: dict[int, list[int]] = {}
        for host, at in places:
            by_host.setdefault(host, []).append(at)
        inside = min(self.ring(host, tuple(sorted(at))) for host, at in by_host.items())
        if len(by_host) == 1:
            return inside
        nics = min(len(at) * 25.0 * len(self.hosts[host].nics) / self.per_node for host, at in by_host.items())
        paths = [self.hosts[host].switches for host in by_host]
        level = next((d for d in range(len(paths[0]) + 1) if len({p[: len(p) - d] for p in paths}) == 1), 0)
        return min(inside, nics * LEVEL**level)

    def costs(self, mesh: MeshSpec, places: Sequence[Place]) -> tuple[float, ...]:
        """Seconds per GB by axis, tensor parallelism first."""
        return tuple(
            1
            / min(
                self.group(at if chain else tuple(sorted(at)), chain)
                for g in groups
                if (at := tuple(places[r] for r in g))
            )
            for chain, groups in groups_of(mesh)
        )

    def assignments(self) -> Iterator[list[Place]]:
        """All that torchrun can express: hosts in any order, devices of each in any order."""
        for order in permutations(range(len(self.hosts))):
            devices = [list(permutations(range(len(self.hosts[host].devices)), self.per_node)) for host in order]
            for choice in product(*devices):
                yield [(host, at) for host, ats in zip(order, choice, strict=True) for at in ats]

    def best(self, mesh: MeshSpec) -> tuple[float, ...]:
        """On one host the first rank may keep the first device where every axis is a ring: meshes are symmetric."""
        fixed = len(self.hosts) == 1 and "pp" not in mesh.degrees and len(self.hosts[0].devices) == self.per_node
        found = (places for places in self.assignments() if not fixed or places[0] == (0, 0))
        return min(self.costs(mesh, places) for places in found)


def best_partition(host: HostTopology, size: int) -> float:
    """GB/s of the slowest group in the best partition of all devices into groups of `size`."""
    oracle = Oracle([host], len(host.devices))

    def cut(left: frozenset[int]) -> float:
        if not left:
            return inf
        first = min(left)
        return max(
            min(oracle.ring(0, (first, *rest)), cut(left - {first, *rest}))
            for rest in combinations(sorted(left - {first}), size - 1)
        )

    return cut(frozenset(range(len(host.devices))))
