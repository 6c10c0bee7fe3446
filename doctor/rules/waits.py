"""The wait-for graph: which rank waits in which call of which group for which ranks. Pure.

Nodes are ranks and wait points (a call that somebody has entered and nobody can leave); a rank points at the calls in
which it is stuck, a call at the ranks that have not entered it. Ranks in which the paths end are culprits; a strongly
connected part that no path leaves is a cycle; a call that all have entered and that still does not end is stalled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from doctor.evidence import EvidenceSet
from doctor.evidence.rank_table import Call
from doctor.rules.fleet import Fleet, Group, Member, fleet_of
from doctor.text import fold


@dataclass(frozen=True)
class WaitPoint:
    """A call that some ranks are stuck in. `seq` counts the group's collectives."""

    group: Group
    seq: int
    waiting: Mapping[int, Member]
    absent: frozenset[int]  # members that have not entered it, with or without a dump
    blocked: frozenset[int]  # entered in order, but held up before it (scheduled where others have started)

    @property
    def key(self) -> tuple[tuple[int, ...], str, int]:
        return (self.group.members, self.group.name, self.seq)

    def call(self) -> Call | None:
        """The call as one of the waiting ranks recorded it, with its frames."""
        calls = (self.waiting[rank].newest_call(self.seq) for rank in sorted(self.waiting))
        return next((call for call in calls if call is not None), None)

    @property
    def op(self) -> str:
        call = self.call()
        return call.signature.op if call else "collective"

    def __str__(self) -> str:
        return f"number {self.seq} ({self.op}) of {self.group.label}"

    @property
    def facts(self) -> dict[str, Any]:
        """The same for machines, as findings carry it in `detail`."""
        return {"group": self.group.kind, "members": fold(self.group.members), "seq": self.seq, "op": self.op}


@dataclass(frozen=True)
class WaitGraph:
    """All wait points, and which of them each rank is stuck in."""

    fleet: Fleet
    points: Sequence[WaitPoint]
    stuck_in: Mapping[int, Sequence[WaitPoint]]  # rank → the points that hold it

    def waiters(self, point: WaitPoint) -> frozenset[int]:
        return frozenset(rank for rank in point.waiting if point in self.stuck_in.get(rank, ()))

    def culprits(self) -> dict[int, list[WaitPoint]]:
        """Ranks that others wait for and that wait for nobody: rank → the points where it is missed."""
        missed: defaultdict[int, list[WaitPoint]] = defaultdict(list)
        for point in self.points:
            for rank in point.absent:
                if not self.stuck_in.get(rank):
                    missed[rank].append(point)
        return dict(missed)

    def cycles(self) -> list[list[int]]:
        """Sets of ranks that wait for each other, of which no path leads to a rank that waits for nobody."""
        roots = self.culprits().keys()
        number = {point.key: -1 - index for index, point in enumerate(self.points)}  # calls are the nodes below 0
        edges = {number[point.key]: sorted(point.absent) for point in self.points}
        edges |= {rank: [number[point.key] for point in held] for rank, held in self.stuck_in.items()}
        parts = [part for part in strongly_connected(edges) if len(part) > 1]
        closed = (part for part in parts if not any(roots & set(edges[node]) for node in part if node < 0))
        return [[node for node in part if node >= 0] for part in closed]

    def stalled(self) -> list[WaitPoint]:
        """Points that all members have entered and that do not end."""
        return [point for point in self.points if not point.absent and not point.blocked]

    def held_up(self) -> list[WaitPoint]:
        """Points that all members have entered and that some devices have not started."""
        return [point for point in self.points if not point.absent and point.blocked]


def graph_of(evidence: EvidenceSet) -> WaitGraph:
    """The graph of the ranks' newest dumps. Use as `evidence.once(graph_of)`."""
    fleet = evidence.once(fleet_of)
    points: list[WaitPoint] = []
    entered: defaultdict[int, list[WaitPoint]] = defaultdict(list)
    for group in fleet.groups:
        points += _points_of(group, fleet)
    points.sort(key=lambda point: point.key)
    for point in points:
        for rank in point.waiting:
            entered[rank].append(point)
    stuck = {rank: _holding(rank, found) for rank, found in entered.items()}
    used = {point.key for held in stuck.values() for point in held}
    return WaitGraph(fleet, [point for point in points if point.key in used], stuck)


def _points_of(group: Group, fleet: Fleet) -> list[WaitPoint]:
    oldest: defaultdict[int, dict[int, Member]] = defaultdict(dict)
    for rank, member in group.seen.items():
        if member.view.enqueued > member.view.completed:
            oldest[member.view.completed + 1].update({rank: member})
    return [_point(group, seq, fleet) for seq in sorted(oldest)]


def _point(group: Group, seq: int, fleet: Fleet) -> WaitPoint:
    entered = {rank: one for rank, one in group.seen.items() if one.view.enqueued >= seq > one.view.completed}
    passed = {rank for rank, one in group.seen.items() if one.view.completed >= seq}
    absent = {rank for rank, one in group.seen.items() if one.view.enqueued < seq and one.behind_sure}
    absent |= {rank for rank in group.members if rank not in fleet.tables and rank not in passed}
    absent |= {rank for rank in group.members if rank in fleet.tables and rank not in group.seen and group.sure}
    started = {rank for rank, one in entered.items() if one.view.started >= seq}
    waiting = {rank: one for rank, one in entered.items() if one.view.completed == seq - 1 or rank in started}
    blocked = frozenset(entered.keys() - started) if started and _tells_started(entered.values()) else frozenset()
    return WaitPoint(group, seq, waiting, frozenset(absent), blocked)


def _tells_started(members: Iterable[Member]) -> bool:
    """Whether these dumps show when a call starts on the device (gloo's do not)."""
    return all("gloo" not in member.table.library for member in members)


def _holding(rank: int, points: Sequence[WaitPoint]) -> list[WaitPoint]:
    """Which of the calls that a rank has entered hold it: those that run; else the oldest that it issued."""
    running = [point for point in points if rank not in point.blocked]
    if running or not points:
        return running
    return [min(points, key=lambda point: _issued(rank, point))]


def _issued(rank: int, point: WaitPoint) -> int:
    call = point.waiting[rank].newest_call(point.seq)
    return call.created_ns if call else 0


def strongly_connected(edges: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Tarjan's strongly connected components, iterative; each sorted, in order of their smallest member."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    parts: list[list[int]] = []
    for root in edges:
        if root not in index:
            _visit(root, edges, index, low, stack, parts)
    return sorted(parts)


def _visit(
    root: int,
    edges: Mapping[int, Sequence[int]],
    index: dict[int, int],
    low: dict[int, int],
    stack: list[int],
    parts: list[list[int]],
) -> None:
    path = [(root, iter(edges.get(root, ())))]
    index[root] = low[root] = len(index)
    stack.append(root)
    on_stack = {root}
    while path:
        node, successors = path[-1]
        for successor in successors:
            if successor not in index:
                index[successor] = low[successor] = len(index)
                stack.append(successor)
                on_stack.add(successor)
                path.append((successor, iter(edges.get(successor, ()))))
                break
            if successor in on_stack:
                low[node] = min(low[node], index[successor])
        else:
            path.pop()
            if path:
                low[path[-1][0]] = min(low[path[-1][0]], low[node])
            if low[node] == index[node]:
                at = stack.index(node)
                parts.append(sorted(stack[at:]))
                on_stack -= set(stack[at:])
                del stack[at:]
