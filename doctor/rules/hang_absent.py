"""Ranks that did not come to a call in which others wait: one finding for each call and reason. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from doctor.rules.hang_evidence import decisions, waiting_in
from doctor.rules.hang_locks import lock_cycle
from doctor.rules.hang_p2p import apart_in_exchange
from doctor.rules.suspects import Suspect, Witnesses
from doctor.rules.waits import WaitGraph, WaitPoint
from doctor.text import fold, name_ranks
from launcher.common.finding import Finding, unknown

PATIENCE_S = 120.0  # so long a checkpoint or a compilation may hold the others up
SLOW_WORK = ("checkpoint", "compile")


def absent_ranks(
    culprits: dict[int, list[WaitPoint]], graph: WaitGraph, witnesses: Witnesses, age: float | None
) -> Iterator[Finding]:
    """Findings for the ranks that did not come, one for each place and sub-cause."""
    if culprits and all((place := witnesses.place(rank)) and place.kind == "p2p" for rank in culprits):
        yield apart_in_exchange(sorted(culprits), next(iter(culprits.values()))[0], graph, witnesses)
        return
    at_peers = {rank for rank in culprits if (place := witnesses.place(rank)) and place.waits_for_peers}
    known = {rank for rank in culprits if rank in graph.fleet.tables} - at_peers
    late = known or culprits.keys() - at_peers or culprits.keys()
    groups: defaultdict[tuple[object, ...], list[Suspect]] = defaultdict(list)
    for rank in sorted(late):
        suspect = witnesses.suspect(rank)
        if suspect.sub_cause == "silent" and rank in graph.fleet.tables:
            suspect = Suspect(rank, "python")
        point = culprits[rank][0]
        groups[point.key, suspect.sub_cause, suspect.note].append(suspect)
    for suspects in groups.values():
        point = culprits[suspects[0].rank][0]
        if suspects[0].sub_cause == "silent" and 2 * len(suspects) > len(point.group.members):
            yield _unheard(suspects, point, graph)
        elif suspects[0].sub_cause == "file_lock" and (cycle := lock_cycle(suspects, point, graph, witnesses)):
            yield cycle
        else:
            yield _absent_finding(suspects, culprits[suspects[0].rank], graph, age)


def _unheard(suspects: Sequence[Suspect], point: WaitPoint, graph: WaitGraph) -> Finding:
    """Most members gave nothing at all: nobody asked them, rather than that they all are to blame."""
    silent = name_ranks([suspect.rank for suspect in suspects])
    here = name_ranks(sorted(graph.waiters(point)))
    return unknown(
        f"{here} waits in {point}; nothing is known of {silent}, most of its members.",
        [f"dumps (or stacks, or logs) of {silent}"],
        waiting_in(graph),
    )


def _absent_finding(
    suspects: Sequence[Suspect], points: Sequence[WaitPoint], graph: WaitGraph, age: float | None
) -> Finding:
    point = points[0]
    ranks = tuple(suspect.rank for suspect in suspects)
    suspect = replace(suspects[0], sub_cause=_refined(suspects[0].sub_cause, ranks, point))
    waiting = sorted({rank for one in graph.points for rank in graph.waiters(one)} - set(ranks))
    patient = suspect.sub_cause in SLOW_WORK and age is not None and age < PATIENCE_S
    silent = not graph.fleet.tables.keys() & set(ranks)
    verb = "has" if len(ranks) == 1 else "have"
    since = f" for {age:.0f} s" if age is not None else ""
    return Finding(
        "hang.none_slow" if patient else "hang.absent_rank",
        "info" if patient else "error",
        f"{name_ranks(ranks)} {verb} not entered {point}, in which {name_ranks(waiting)} "
        f"wait{'s' if len(waiting) == 1 else ''}{since}: {name_ranks(ranks)} {suspect.does}.",
        suspect.fix,
        _confidence(suspect.sub_cause, silent, len(ranks), len(point.group.members)),
        ranks=ranks,
        detail={
            "sub_cause": suspect.sub_cause,
            **point.facts,
            "waiting": fold(waiting),
            "decisions": decisions(graph, "did all ranks enter it?", f"no: {name_ranks(ranks)} did not"),
        },
        evidence=[*(piece for one in suspects[:4] for piece in one.evidence), *waiting_in(graph)],
        missing=[f"no dump from {name_ranks(graph.fleet.silent)}"] if graph.fleet.silent else [],
    )


def _refined(sub_cause: str, ranks: Sequence[int], point: WaitPoint) -> str:
    """`python` says little: where rank 0 alone is missing, or alone waits, a branch on the rank is likely."""
    if sub_cause == "python" and len(point.group.members) > 2 and (ranks == (0,) or set(point.waiting) == {0}):
        return "rank0_only"
    return sub_cause


def _confidence(sub_cause: str, silent: bool, count: int, members: int) -> float:
    if silent:
        return 0.8 if sub_cause in ("dead", "stopped") else 0.6
    return 0.9 if 2 * count <= members else 0.7
