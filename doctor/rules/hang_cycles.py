"""Ranks that wait for each other in different groups: who came to its call with other counts than its peers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from doctor.evidence.rank_table import GroupView
from doctor.rules.fleet import Group
from doctor.rules.hang_evidence import SHOWN, decisions, frames_at, waiting_in
from doctor.rules.waits import WaitGraph, WaitPoint
from doctor.text import name_ranks
from launcher.common.finding import Finding


def cycle_finding(ranks: Sequence[int], graph: WaitGraph) -> Finding:
    odd = _out_of_order(ranks, graph) or list(ranks)
    held = {rank: graph.stuck_in[rank][0] for rank in ranks}
    steps = [
        f"rank {rank} is in {point}, which waits for {name_ranks(sorted(point.absent))}"
        for rank, point in sorted(held.items())[:SHOWN]
    ]
    missed = [point for point in graph.points if set(odd) & point.absent]
    sure = len(odd) < len(ranks)
    went_on = f" {name_ranks(odd)} left out {' and '.join(map(str, missed[:3]))} and went on." if sure else ""
    return Finding(
        "hang.cross_group_cycle",
        "error",
        f"{name_ranks(ranks)} wait for each other in different groups.{went_on} " + "; ".join(steps) + ".",
        "Let all ranks make the calls of all groups in the same order.",
        0.9 if sure else 0.6,
        ranks=tuple(odd),
        detail={"cycle": list(ranks), "decisions": decisions(graph, "does somebody wait for nobody?", "no: a cycle")},
        evidence=[piece for rank in odd for piece in frames_at(graph, rank)] + waiting_in(graph),
    )


def _out_of_order(ranks: Sequence[int], graph: WaitGraph) -> list[int]:
    """Of the ranks in a cycle those that came to their call with other counts in the other groups than most ranks."""
    odd = []
    for rank in ranks:
        point = graph.stuck_in[rank][0]
        own, usual = _before(rank, point), Counter[tuple[tuple[str, int], ...]]()
        for group in graph.fleet.groups:
            if group.kind == point.group.kind:
                usual.update(_before(other, point, group) for other in group.seen if other != rank)
        usual.pop((), None)
        if usual and usual.most_common(1)[0][0] != own:
            odd.append(rank)
    return odd if len(odd) < len(ranks) else []


def _before(rank: int, point: WaitPoint, group: Group | None = None) -> tuple[tuple[str, int], ...]:
    """(kind of group, newest number) of the other groups when a rank made the call; () if it did not make it."""
    member = (group or point.group).seen[rank]
    table, newest = member.table, dict[int, int]()
    columns = table.calls.unpack()
    for owner, number in zip(columns.group, columns.seq, strict=True):
        if owner == member.index and number == point.seq:
            return tuple(sorted((_kind(table.groups[one]), seq) for one, seq in newest.items() if one != owner))
        newest[owner] = number
    return ()


def _kind(view: GroupView) -> str:
    return view.desc or view.name
