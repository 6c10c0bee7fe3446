"""Who holds up whom, from dumps: the wait-for graph's roots are the culprits, the others are victims."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.flight_recorder import ProcessView
from doctor.evidence.rank_table import Frame, GroupView, Signature
from doctor.rules import Rule, healthy
from doctor.rules.align import Divergence, divergence_of
from doctor.rules.fleet import Fleet, Group, fleet_of
from doctor.rules.hang_locks import lock_cycle
from doctor.rules.hang_p2p import gone_ahead
from doctor.rules.places import is_user_code
from doctor.rules.suspects import SUB_CAUSES, Suspect, Witnesses, witnesses_of
from doctor.rules.waits import WaitGraph, WaitPoint, wait_graph
from doctor.text import fold, name_ranks
from launcher.common.finding import Evidence, Finding, unknown

QUIET_S = 5.0  # a wait younger than this in a single sample says nothing
PATIENCE_S = 120.0  # so long a checkpoint or a compilation may hold the others up
SLOW_WORK = ("checkpoint", "compile")
WAITING_SHOWN = 8


def find_hang(evidence: EvidenceSet) -> Iterator[Finding]:
    """One finding for the root of what hangs, from the dumps and what is known beside them."""
    fleet = evidence.once(fleet_of)
    if not fleet.tables:
        return
    graph = wait_graph(fleet)
    concerned = {rank for point in graph.points for rank in point.group.members}
    moving = fleet.moved(concerned) or sorted(concerned & set(evidence.once(witnesses_of).stepping))
    if not graph.points:
        yield from _quiet(fleet)
    elif moving:
        yield none_slow(moving)
    elif (age := _age(evidence, graph)) is not None and age < QUIET_S and not fleet.earlier:
        yield healthy(f"the oldest wait is {age:.1f} s old", _waiting(graph))
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
        yield from (_cycle(ranks, graph) for ranks in cycles)
    elif culprits := graph.culprits():
        yield from _absent(culprits, graph, witnesses, age)
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
            "decisions": _decisions(graph, "same call, order, shape?", "no"),
        },
        evidence=[*_frames_of(group, part.seq, odd), *_waiting(graph)],
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
    return sorted(names)[:WAITING_SHOWN]


def _cycle(ranks: Sequence[int], graph: WaitGraph) -> Finding:
    odd = _out_of_order(ranks, graph) or list(ranks)
    held = {rank: graph.stuck_in[rank][0] for rank in ranks}
    steps = [
        f"rank {rank} is in number {point.seq} ({point.op}) of {point.group.label}, which waits for "
        f"{name_ranks(sorted(point.absent))}"
        for rank, point in sorted(held.items())[:WAITING_SHOWN]
    ]
    missed = [point for point in graph.points if set(odd) & point.absent]
    sure = len(odd) < len(ranks)
    went_on = f" {name_ranks(odd)} left out {_names(missed)} and went on." if sure else ""
    return Finding(
        "hang.cross_group_cycle",
        "error",
        f"{name_ranks(ranks)} wait for each other in different groups.{went_on} " + "; ".join(steps) + ".",
        "Let all ranks make the calls of all groups in the same order.",
        0.9 if sure else 0.6,
        ranks=tuple(odd),
        detail={"cycle": list(ranks), "decisions": _decisions(graph, "does somebody wait for nobody?", "no: a cycle")},
        evidence=[piece for rank in odd for piece in _frames_at(graph, rank)] + _waiting(graph),
    )


def _names(points: Sequence[WaitPoint]) -> str:
    return " and ".join(f"number {point.seq} ({point.op}) of {point.group.label}" for point in points[:3])


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


def _absent(
    culprits: dict[int, list[WaitPoint]], graph: WaitGraph, witnesses: Witnesses, age: float | None
) -> Iterator[Finding]:
    """Findings for the ranks that did not come, one for each place and sub-cause."""
    if culprits and all((place := witnesses.place(rank)) and place.kind == "p2p" for rank in culprits):
        yield gone_ahead(sorted(culprits), next(iter(culprits.values()))[0], graph, witnesses)
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
        f"{here} waits in number {point.seq} ({point.op}) of {point.group.label}; nothing is known of {silent}, "
        "most of its members.",
        [f"dumps (or stacks, or logs) of {silent}"],
        _waiting(graph),
    )


def _absent_finding(
    suspects: Sequence[Suspect], points: Sequence[WaitPoint], graph: WaitGraph, age: float | None
) -> Finding:
    point, first = points[0], suspects[0]
    ranks = tuple(suspect.rank for suspect in suspects)
    waiting = sorted({rank for one in graph.points for rank in graph.waiters(one)} - set(ranks))
    sub_cause = _refined(first.sub_cause, ranks, point)
    patient = sub_cause in SLOW_WORK and age is not None and age < PATIENCE_S
    silent = not graph.fleet.tables.keys() & set(ranks)
    verb = "has" if len(ranks) == 1 else "have"
    since = f" for {age:.0f} s" if age is not None else ""
    does = SUB_CAUSES[sub_cause][0] + (f" ({first.note})" if first.note else "")
    return Finding(
        "hang.none_slow" if patient else "hang.absent_rank",
        "info" if patient else "error",
        f"{name_ranks(ranks)} {verb} not entered number {point.seq} ({point.op}) of {point.group.label}, "
        f"in which {name_ranks(waiting)} wait{'s' if len(waiting) == 1 else ''}{since}: {name_ranks(ranks)} {does}.",
        SUB_CAUSES[sub_cause][1],
        _confidence(sub_cause, silent, len(ranks), len(point.group.members)),
        ranks=ranks,
        detail={
            "sub_cause": sub_cause,
            "group": point.group.kind,
            "members": fold(point.group.members),
            "seq": point.seq,
            "op": point.op,
            "waiting": fold(waiting),
            "decisions": _decisions(graph, "did all ranks enter it?", f"no: {name_ranks(ranks)} did not"),
        },
        evidence=[*(piece for one in suspects[:4] for piece in one.evidence), *_waiting(graph)],
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
            "group": point.group.kind,
            "members": fold(point.group.members),
            "seq": point.seq,
            "op": point.op,
            "decisions": _decisions(graph, "same call, order, shape?", "yes: it is below the program"),
        },
        evidence=_waiting(graph),
    )


def _decisions(graph: WaitGraph, last: str, answer: str) -> list[str]:
    """The tree that people follow by hand, with the branch taken."""
    everybody = len(graph.stuck_in) == len(graph.fleet.world)
    one_place = len(graph.points) == 1
    return [
        f"are all ranks stuck? {'yes' if everybody else f'{len(graph.stuck_in)} of {len(graph.fleet.world)}'}",
        f"in the same call? {'yes' if one_place else f'no: in {len(graph.points)} calls'}",
        f"{last} {answer}",
    ]


def _waiting(graph: WaitGraph) -> list[Evidence]:
    """For each stuck call who is in it and where it was called."""
    pieces = []
    for point in graph.points[:WAITING_SHOWN]:
        ranks, call = sorted(graph.waiters(point)), point.call()
        line = f" at {call.frames[_user(call.frames)]}" if call and call.frames else ""
        where = f"{fold(ranks)} #{point.seq}"
        pieces.append(Evidence("flight_recorder", where, f"waiting in {_called(point)} of {point.group.label}{line}"))
    return pieces


def _called(point: WaitPoint) -> str:
    call = point.call()
    return str(call.signature) if call else point.op


def _user(frames: Sequence[Frame]) -> int:
    """Index of the innermost frame of the user's code; the outermost where there is none."""
    return next((index for index, frame in enumerate(frames) if is_user_code(frame)), len(frames) - 1)


def _frames_at(graph: WaitGraph, rank: int) -> list[Evidence]:
    return [piece for point in graph.stuck_in[rank] for piece in _frames_of(point.group, point.seq, [rank])]


def _frames_of(group: Group, seq: int, ranks: Sequence[int]) -> list[Evidence]:
    pieces = []
    for rank in ranks[:WAITING_SHOWN]:
        call = group.seen[rank].newest_call(seq) if rank in group.seen else None
        if call and call.frames:
            where = f"{group.seen[rank].table.where} #{seq}"
            pieces.append(Evidence("flight_recorder", where, f"{call.signature} at {call.frames[_user(call.frames)]}"))
    return pieces


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
