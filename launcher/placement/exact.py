"""Exact placement of up to 16 devices: the best assignment of ranks to devices, and of blocks of ranks to hosts.

Costs are bottlenecks, so each axis can only take few values. The search asks, for the best values first, whether an
assignment reaches them; assignments are tried in index order and symmetric ones once, so that the first one found is
also the one nearest to index order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product
from math import inf, prod

from launcher.placement.axes import Axis
from launcher.placement.cluster import SWITCH_LEVEL, Cluster, Node, Place
from launcher.placement.cost import Objective, evaluate
from launcher.placement.ring import Pattern, members_of
from launcher.spec import EXPERT_AXIS

EXACT_DEVICES = 16
BUDGET = 20_000  # steps of one search; beyond them a value counts as not reached, and the result as not exact


@dataclass
class Search:
    """One placement problem: `ranks` ranks in blocks of `per_node`, each block on a host of its own."""

    cluster: Cluster
    axes: tuple[Axis, ...]
    ranks: int
    per_node: int
    objective: Objective
    exact: bool = True
    _memo: dict[tuple[str, tuple[Place, ...]], float] = field(default_factory=dict)

    def best(self) -> list[Place]:
        """The best assignment: place of each rank. There is always one: thresholds go down to zero."""
        if self.objective.traffic is None:
            return self._lexicographic()
        return self._weighted()

    def _lexicographic(self) -> list[Place]:
        reached: dict[str, float] = {}
        places = self.solve({}) or []
        for axis in self.axes:
            floor = evaluate(self.cluster, [axis], places)[axis.name]
            for value in self.values(axis):
                if value <= floor:
                    break
                if better := self.solve({**reached, axis.name: value}):
                    places, floor = better, value
                    break
            reached[axis.name] = floor
        return self.solve(reached) or places

    def _weighted(self) -> list[Place]:
        start = self.solve({}) or []
        limit = self.objective.key(evaluate(self.cluster, self.axes, start))
        names = [axis.name for axis in self.axes]
        combos = [
            dict(zip(names, values, strict=True)) for values in product(*(self.values(axis) for axis in self.axes))
        ]
        failed: list[Mapping[str, float]] = []
        for combo in sorted(combos, key=self.objective.key):
            if self.objective.key(combo) >= limit:
                break
            if any(all(combo[name] >= bad[name] for name in names) for bad in failed):
                continue
            if places := self.solve(combo):
                return places
            failed.append(combo)
        return start

    def values(self, axis: Axis) -> list[float]:
        """Bandwidths that a group of the axis can have, best first, none above what the axis could reach alone."""
        nodes = self.cluster.nodes
        found = {weight for node in nodes for row in node.weights for weight in row if weight < inf}
        depth = 2 + max(len(node.host.switches) for node in nodes)
        shares = {node.share for node in nodes} if len(nodes) > 1 else set()
        found |= {s * w * SWITCH_LEVEL**d for s in shares for w in range(1, axis.degree + 1) for d in range(depth)}
        found |= {node.fabric_gbps for node in nodes if node.fabric}
        return sorted((value for value in found if value <= self.bound(axis)), reverse=True)

    def bound(self, axis: Axis) -> float:
        """The best bandwidth of the axis if no other axis and no block of ranks restrained it."""
        return self._bounds[axis.name]

    @cached_property
    def _bounds(self) -> dict[str, float]:
        return {
            axis.name: alone(self.cluster, axis.degree, len(axis.groups), axis.pattern) if axis.even else inf
            for axis in self.axes
        }

    def value(self, axis: Axis, places: Sequence[Place]) -> float:
        key = (axis.pattern, tuple(places if axis.pattern == "chain" else sorted(places)))
        if (known := self._memo.get(key)) is None:
            known = self._memo[key] = self.cluster.bandwidth(places, axis.pattern)
        return known

    def solve(self, thresholds: Mapping[str, float]) -> list[Place] | None:
        """The first assignment in index order whose groups all reach their axis' threshold; None without one."""
        walk = Walk(self, thresholds)
        found = walk.run()
        self.exact = self.exact and walk.steps < BUDGET
        return found


@dataclass(frozen=True)
class Check:
    """What must hold for one group once the last rank of `prefix` is placed; `near` is None for groups across hosts.

    `near[node][place]` is the mask of places on the node that a link of the threshold or more leads to.
    """

    axis: Axis
    prefix: tuple[int, ...]
    threshold: float
    near: Sequence[Sequence[int]] | None

    @property
    def missing(self) -> int:
        return self.axis.degree - len(self.prefix)


class Walk:
    """One depth-first search over ranks in order."""

    def __init__(self, search: Search, thresholds: Mapping[str, float]) -> None:
        self.search = search
        self.places: list[Place] = []
        self.free = [(1 << node.slots) - 1 for node in search.cluster.nodes]
        self.steps = 0
        self.checks: list[list[Check]] = [[] for _ in range(search.ranks)]
        for axis in search.axes:
            if (threshold := thresholds.get(axis.name, 0.0)) > 0:
                self.add_checks(axis, threshold)
        self.ordered = origin_lines(search)

    def add_checks(self, axis: Axis, threshold: float) -> None:
        near = [near_masks(node, threshold) for node in self.search.cluster.nodes]
        for group in axis.groups:
            inside = group[0] // self.search.per_node == group[-1] // self.search.per_node
            exact = replace(axis, groups=(group,))
            for k, rank in enumerate(group):
                self.checks[rank].append(Check(exact, group[: k + 1], threshold, near if inside else None))

    def run(self) -> list[Place] | None:
        rank = len(self.places)
        if rank == self.search.ranks:
            return list(self.places)
        for node, at in self.candidates(rank):
            self.steps += 1
            if self.steps >= BUDGET:
                return None
            self.places.append((node, at))
            self.free[node] ^= 1 << at
            if all(self.holds(check) for check in self.checks[rank]) and (found := self.run()):
                return found
            self.free[node] ^= 1 << at
            self.places.pop()
        return None

    def candidates(self, rank: int) -> list[Place]:
        """Free places for a rank in index order, one of each set that cannot be told apart."""
        after = self.places[self.ordered[rank]] if rank in self.ordered else (-1, -1)
        if rank % self.search.per_node:
            nodes = [self.places[-1][0]]
        else:
            nodes = self.search.cluster.unlike({node for node, _ in self.places})
        found = []
        for node in nodes:
            first = {self.search.cluster.twins[node][at]: at for at in reversed(members_of(self.free[node]))}
            found += [(node, at) for at in sorted(first.values()) if (node, at) > after]
        return found

    def holds(self, check: Check) -> bool:
        """Whether a group reaches its threshold, or, while half-filled, still can."""
        placed = [self.places[rank] for rank in check.prefix]
        if not check.missing:
            return self.search.value(check.axis, placed) >= check.threshold
        return check.near is None or self.hopeful(check, placed, check.near[placed[0][0]])

    def hopeful(self, check: Check, placed: Sequence[Place], near: Sequence[int]) -> bool:
        """A necessary condition inside one host: members have neighbours enough among themselves and free places."""
        free = self.free[placed[0][0]]
        if check.axis.pattern == "chain":
            last = placed[-1][1]
            linked = len(placed) < 2 or near[last] >> placed[-2][1] & 1
            return bool(linked and near[last] & free)
        if check.axis.pattern == "pairs" or check.axis.degree < 4:
            common = free
            for _, at in placed:
                common &= near[at]
            met = all(near[placed[-1][1]] >> at & 1 for _, at in placed[:-1])
            return met and common.bit_count() >= check.missing
        mine = sum(1 << at for _, at in placed)
        return all((near[at] & (free | mine)).bit_count() >= 2 for _, at in placed)


def near_masks(node: Node, threshold: float) -> list[int]:
    size = range(node.slots)
    return [sum(1 << b for b in size if b != a and node.weights[a][b] >= threshold) for a in size]


def origin_lines(search: Search) -> dict[int, int]:
    """Rank -> an earlier rank whose place must come before its own: only one of all mirror images is tried.

    Coordinates along an axis may be exchanged freely as long as neither order (pipelines), nor experts' second view,
    nor the blocks of hosts tell them apart; so along the lines through rank 0 places ascend.
    """
    ordered = any(axis.pattern == "chain" or axis.name == EXPERT_AXIS for axis in search.axes)
    if ordered or search.ranks > search.per_node or not is_grid(search):
        return {}
    before: dict[int, int] = {}
    for axis in search.axes:
        line = next(group for group in axis.groups if group[0] == 0)
        before |= dict(zip(line[1:], line, strict=False))
    return {rank: before.get(rank, 0) for rank in range(1, search.ranks)}


def is_grid(search: Search) -> bool:
    """Whether the axes make up a whole mesh of the ranks; parts of groups that meet on one host may not."""
    whole = all(axis.even and axis.degree * len(axis.groups) == search.ranks for axis in search.axes)
    return whole and prod(axis.degree for axis in search.axes) == search.ranks


def alone(cluster: Cluster, degree: int, count: int, pattern: Pattern) -> float:
    """The best bottleneck of `count` disjoint groups of `degree` places, wherever they are; an upper bound for chains.

    Tries bandwidths from the best one down and looks for disjoint groups that all reach it.
    """
    every = [(node, at) for node, host in enumerate(cluster.nodes) for at in range(host.slots)]
    if pattern == "chain":
        best = max((cluster.bandwidth(pair, pattern) for pair in combinations(every, 2)), default=inf)
        return best if degree > 1 else inf
    sets = {frozenset(group): cluster.bandwidth(group, pattern) for group in combinations(every, degree)}
    for value in sorted(set(sets.values()), reverse=True):
        good = [group for group, reached in sets.items() if reached >= value]
        if disjoint(good, count, len(every) - degree * count):
            return value
    return 0.0


def disjoint(groups: Sequence[frozenset[Place]], count: int, spare: int) -> bool:
    """Whether `count` of the groups are disjoint and leave no more than `spare` of all places out."""
    holders: dict[Place, list[frozenset[Place]]] = {}
    for group in groups:
        holders.setdefault(min(group), []).append(group)
    places = sorted({place for group in groups for place in group})
    dead = set[frozenset[Place]]()

    def cover(gone: frozenset[Place], left: int, spare: int) -> bool:
        if not left:
            return True
        first = next((place for place in places if place not in gone), None)
        if first is None or gone in dead:
            return False
        if any(cover(gone | group, left - 1, spare) for group in holders.get(first, ()) if not group & gone):
            return True
        if spare and cover(gone | {first}, left, spare - 1):
            return True
        dead.add(gone)
        return False

    return cover(frozenset(), count, spare)
