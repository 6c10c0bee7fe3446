"""Bottlenecks inside one host: what the slowest link of a group's best ring carries.

Members are bits of a mask over the host's devices; `weights[a][b]` is the bandwidth in GB/s of the path between two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from math import inf
from typing import Literal

Pattern = Literal["ring", "chain", "pairs"]  # collectives, pipeline neighbours, all-to-all
Weights = tuple[tuple[float, ...], ...]


def members_of(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def bottleneck(weights: Weights, members: Sequence[int], pattern: Pattern) -> float:
    """GB/s of the slowest link that `members` cannot avoid; infinite for a single member.

    `ring`: the best Hamiltonian cycle; `chain`: neighbours in the given order; `pairs`: every pair.
    """
    if len(members) < 2:
        return inf
    if pattern == "chain":
        return min(weights[a][b] for a, b in pairwise(members))
    if pattern == "pairs" or len(members) < 4:
        return min(weights[a][b] for a, b in combinations(members, 2))
    return best_ring(weights, sum(1 << member for member in members))


@lru_cache(maxsize=1 << 16)
def best_ring(weights: Weights, mask: int) -> float:
    """Bottleneck of the best Hamiltonian cycle through four members or more: the highest weight whose graph has one."""
    members = members_of(mask)
    ceiling = min(sorted((weights[a][b] for b in members if b != a), reverse=True)[1] for a in members)
    levels = sorted(
        {weights[a][b] for a in members for b in members if a < b and weights[a][b] <= ceiling}, reverse=True
    )
    return next(level for level in levels if has_ring(weights, mask, level))


def has_ring(weights: Weights, mask: int, level: float) -> bool:
    """Whether a Hamiltonian cycle through `mask` uses only links of at least `level`."""
    members = members_of(mask)
    near = {a: sum(1 << b for b in members if b != a and weights[a][b] >= level) for a in members}
    if all(2 * near[a].bit_count() >= len(members) for a in members):  # Dirac's theorem
        return True
    start, dead = members[0], set[tuple[int, int]]()

    def walk(at: int, left: int) -> bool:
        if not left:
            return bool(near[at] >> start & 1)
        if (at, left) in dead:
            return False
        if any(walk(step, left & ~(1 << step)) for step in members_of(near[at] & left)):
            return True
        dead.add((at, left))
        return False

    return walk(start, mask & ~(1 << start))
