"""Who holds up whom, from dumps: the wait-for graph's roots are the culprits, the others are victims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.flight_recorder import ProcessView
from doctor.evidence.rank_table import Signature
from doctor.rules import Rule, healthy
from doctor.rules.align import Divergence, divergence_of
from doctor.rules.fleet import Fleet, fleet_of
from doctor.rules.hang_absent import absent_ranks
from doctor.rules.hang_cycles import cycle_finding
from doctor.rules.hang_evidence import SHOWN, decisions, frames_of, waiting_in
from doctor.rules.suspects import Witnesses, witnesses_of
from doctor.rules.waits import WaitGraph, WaitPoint, graph_of
from doctor.text import fold, name_ranks
from launcher.common.finding import Finding, unknown

QUIET_S = 5.0  # a wait younger than this in a single sample says nothing


def find_hang(evidence: EvidenceSet) -> Iterator[Finding]:
    """One finding for the root of what hangs, from the dumps and what is known beside them."""
    fleet = evidence.once(fleet_of)
    if not fleet.tables:
        return
    graph = evidence.once(graph_of)
    concerned = {rank for point in graph.points for rank in point.group.members}
    moving = fleet.moved(concerned) or sorted(concerned & set(evidence.once(witnesses_of).stepping))
    if not graph.points:
        yield from _quiet(fleet)
    elif moving:
        yield none_slow(moving)
    elif (age := _age(evidence, graph)) is not None and age < QUIET_S and not fleet.earlier:
        yield healthy(f"the oldest wait is {age:.1f} s old", waiting_in(graph))
    else:
        yield from _root(evidence, fleet, graph, age)


def _root(evidence: EvidenceSet, fleet: Fleet, graph: WaitGraph, age: float | None) -> Iterator[Finding]:
    """The first branch of the tree that applies."""
    witnesses = evidence.once(witnesses_of)
    stuck = {point.group.members for point in graph.points}
    parted = [part for group in fleet.groups if group.members in stuck if (part := divergence_of(group))]
    if parted:
        yield from (_desync(part, graph) for part in parted)
    elif cycles := graph.cycles():
        yield from (cycle_finding(ranks, graph) for ranks in cycles)
    elif culprits := graph.culprits():
        yield from absent_ranks(culprits, graph, witnesses, age)
    else:
        yield from (_stalled(point, graph, witnesses) for point in graph.stalled() or graph.held_up())


def _quiet(fleet: Fleet) -> Iterator[Finding]:
    """No recorded collective is pending."""
    if moving := fleet.moved(fleet.tables):
        yield none_slow(moving)
    elif fleet.silent:
        yield unknown(
            f"All recorded collectives of {name_ranks(fleet.tables)} have ended, but {name_ranks(fleet.silent)} gave "
            "no dump.",
            [f"no dump from {name_ranks(fleet.silent)}"],
        )
    elif any(table.calls.count for table in fleet.tables.values()):
        yield healthy(f"no recorded collective of {name_ranks(fleet.tables)} is pending")


def none_slow(moving: Sequence[int]) -> Finding:
    """These ranks make calls, or steps."""
    return Finding(
        "hang.none_slow",
        "info",
        f"Nothing hangs: {name_ranks(moving)} went on between the two looks.",
        "If it is slower than it should be: ddoctor straggler.",
        0.9,
        ranks=moving,
    )


def _age(evidence: EvidenceSet, graph: WaitGraph) -> float | None:
    """Seconds since the oldest pending call was made, where the time of the dump is known."""
    times = {view.rank: view.time for view in evidence.of(ProcessView)}
    ages = []
    for point in graph.points:
        for rank, member in point.waiting.items():
            call = member.newest_call(point.seq)
            if call and call.created_ns and rank in times:
                ages.append(times[rank] - call.created_ns / 1e9)
    return max(ages, default=None)


def _desync(part: Divergence, graph: WaitGraph) -> Finding:
    group, odd = part.group, part.odd
    made = [f"{name_ranks(ranks)}: {_said(calls)}" for calls, ranks in sorted(part.calls.items(), key=_by_rank)]
    threads = _threads(part)
    code = "hang.shape_mismatch" if part.only_sizes else "hang.desync"
    what = "gave other sizes to the same call" if part.only_sizes else "made another call"
    if threads and not part.only_sizes:
        code, what = "hang.concurrent_threads", "issued from several threads in another order"
    tie = len(odd) == sum(map(len, part.calls.values()))
    shift = {"extra": " It made one call too many before.", "missing": " It left out one call."}.get(part.shift, "")
    who = f"{name_ranks(odd)} differ" if tie else f"{name_ranks(odd)} {what}"
    return Finding(
        code,
        "error",
        f"At number {part.seq} of {group.label} {who}: {'; '.join(made)}.{shift}",
        _desync_fix(code),
        0.7 if tie else 0.95,
        ranks=odd,
        detail={
            "group": group.kind,
            "members": fold(group.members),
            "seq": part.seq,
            "calls": {fold(ranks): _said(calls) for calls, ranks in part.calls.items()},
            "threads": threads,
            "decisions": decisions(graph, "same call, order, shape?", "no"),
        },
        evidence=[*frames_of(group, part.seq, odd), *waiting_in(graph)],
    )


def _by_rank(item: tuple[object, tuple[int, ...]]) -> tuple[int, ...]:
    return item[1]


def _said(calls: Sequence[Signature]) -> str:
    return " + ".join(map(str, calls)) or "nothing"


def _desync_fix(code: str) -> str:
    if code == "hang.shape_mismatch":
        return "Make the tensor equally large on all ranks (pad, or exchange the sizes first)."
    if code == "hang.concurrent_threads":
        return "Issue all collectives of a group from one thread, or give each thread a group of its own."
    return "Let every rank of the group make the same calls in the same order: look for a branch on rank or data there."


def _threads(part: Divergence) -> list[str]:
    """Threads that issue on the group of a rank, autograd's apart, where there are several."""
    names: set[str] = set()
    for member in part.group.seen.values():
        own = [name for name in member.table.threads.get(member.index, ()) if not name.startswith("pt_autograd")]
        if len(own) > 1:
            names.update(own)
    return sorted(names)[:SHOWN]


def _stalled(point: WaitPoint, graph: WaitGraph, witnesses: Witnesses) -> Finding:
    dead = [rank for rank in point.group.members if (state := witnesses.states.get(rank)) and state.dead]
    late = sorted(point.blocked)
    held = f" The device of {name_ranks(late)} has not started it: what was queued there before does not end."
    return Finding(
        "hang.stalled_collective",
        "error",
        f"All {len(point.group.members)} ranks of {point.group.label} entered number {point.seq} ({point.op}) and none "
        f"has finished it: no rank is missing, so what carries the data is suspect.{held if late else ''}",
        "Look at network and device: kernel lines, NCCL logs (NCCL_DEBUG=INFO), ddoctor collect; then run "
        "dlaunch bench comm on these hosts.",
        0.8,
        ranks=tuple(dead or late),
        hosts=graph.fleet.hosts_of(late or point.group.members),
        detail={
            **point.facts,
            "decisions": decisions(graph, "same call, order, shape?", "yes: it is below the program"),
        },
        evidence=waiting_in(graph),
    )


RULES = (
    Rule(
        (
            "hang.absent_rank",
            "hang.desync",
            "hang.shape_mismatch",
            "hang.cross_group_cycle",
            "hang.concurrent_threads",
            "hang.stalled_collective",
            "hang.none_slow",
        ),
        ("hang",),
        find_hang,
    ),
)
