"""Hangs judged by stacks: where dumps are missing or record nothing (gloo's send and recv, ranks without a group)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from doctor.evidence import EvidenceSet
from doctor.evidence.stacks import Stack, Thread
from doctor.rules import Rule
from doctor.rules.fleet import Fleet, fleet_of
from doctor.rules.nameless_stacks import absent_process
from doctor.rules.places import Place, place_of, working_threads
from doctor.rules.suspects import SUB_CAUSES, Suspect, Witnesses, witnesses_of
from doctor.rules.waits import wait_graph
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding, unknown

# A rank found alone in one of these holds up its peers, whatever they do.
TELLING_ALONE = ("dataloader", "file_lock", "checkpoint", "exception")
UNRECORDED = ("monitored_barrier",)
SHOWN = 8
BACKWARD_SURE = 0.6  # less than for ranks that are seen in a collective
_WATCHDOG = re.compile(r"pt_nccl_watchdg|pt_nccl_heartbt|ncclCommWatchdog|Watchdog(?:Handler)?\b|watchdogHandler")
_BLOCKING = re.compile(
    r"ncclComm(?:Abort|Destroy|Finalize)|commReclaim|^cu(?:da)?\w*(?:Destroy|Synchronize|Free)\w*|take_gil"
    r"|PyGILState_Ensure|PyEval_RestoreThread"
)
_ENDING = re.compile(r"ncclComm(?:Abort|Destroy|Finalize)|(?:destroy|abort)_process_group|ProcessGroupNCCL::abort")
MISSING = ("stacks of all ranks at one time (ddoctor collect JOB, or py-spy dump --pid PID on each)",)


def find_by_stacks(evidence: EvidenceSet) -> Iterator[Finding]:
    """Findings from stacks, where the dumps do not show a stuck collective."""
    stacks, fleet = evidence.of(Stack), evidence.once(fleet_of)
    if not stacks or wait_graph(fleet).points or fleet.moved(fleet.tables):
        return
    witnesses = evidence.once(witnesses_of)
    if witnesses.stepping:
        yield _stepping(witnesses.stepping, fleet)
        return
    places = {
        rank: place for rank in witnesses.stacks if not witnesses.is_dead(rank) and (place := witnesses.place(rank))
    }
    at_peers = {rank: place for rank, place in places.items() if place.waits_for_peers}
    elsewhere = {rank: place for rank, place in places.items() if not place.waits_for_peers}
    if at_peers and _recorded_as_done(at_peers, fleet):
        return
    if at_peers and elsewhere:
        yield from _absent(at_peers, elsewhere, fleet, witnesses)
    elif crowd := _in_backward(places, stacks):
        others = {rank: place for rank, place in places.items() if rank not in crowd}
        yield from _absent(crowd, others, fleet, witnesses, BACKWARD_SURE)
    elif at_peers:
        yield from _all_at_peers(at_peers, fleet, witnesses)
    elif elsewhere and all(place.kind == "teardown" for place in elsewhere.values()) and len(elsewhere) > 1:
        yield _teardown(elsewhere, fleet)
    else:
        yield from _alone(stacks)


def _stepping(ranks: Sequence[int], fleet: Fleet) -> Finding:
    return Finding(
        "hang.none_slow",
        "info",
        f"Nothing hangs: {name_ranks(ranks)} made steps between the two looks.",
        "If it is slower than it should be: ddoctor straggler.",
        0.9,
        ranks=tuple(ranks),
    )


def _recorded_as_done(at_peers: Mapping[int, Place], fleet: Fleet) -> bool:
    """Whether dumps show nothing pending of ranks whose stacks, taken a moment later, are in a recorded collective."""
    recorded = all(place.kind == "collective" and place.op not in UNRECORDED for place in at_peers.values())
    return recorded and at_peers.keys() <= fleet.tables.keys()


def _in_backward(places: Mapping[int, Place], stacks: Sequence[Stack]) -> dict[int, Place]:
    """Most ranks when they stay in the backward pass and the others stay elsewhere: DDP reduces gradients in native
    threads, which stacks of Python do not show."""
    crowd = {rank: replace(place, op="the backward pass") for rank, place in places.items() if place.kind == "backward"}
    if not len(places) / 2 < len(crowd) < len(places):
        return {}
    seen = {(stack.rank, place_of(stack).line) for stack in stacks if stack.rank in places}
    return crowd if len(seen) == len(places) else {}


def _absent(
    at_peers: Mapping[int, Place],
    elsewhere: Mapping[int, Place],
    fleet: Fleet,
    witnesses: Witnesses,
    sure: float = 0.8,
) -> Iterator[Finding]:
    """Some wait in calls to their peers; those elsewhere have not come."""
    groups: defaultdict[tuple[str, str], list[Suspect]] = defaultdict(list)
    for rank in sorted(elsewhere):
        suspect = witnesses.suspect(rank)
        groups[suspect.sub_cause, suspect.note].append(suspect)
    ops = sorted({place.op for place in at_peers.values()})
    for (sub_cause, note), suspects in groups.items():
        ranks = tuple(suspect.rank for suspect in suspects)
        does = SUB_CAUSES[sub_cause][0] + (f" ({note})" if note else "")
        waits = "waits" if len(at_peers) == 1 else "wait"
        yield Finding(
            "hang.absent_rank",
            "error",
            f"{name_ranks(sorted(at_peers))} {waits} in {', '.join(ops)} for {name_ranks(ranks)}: "
            f"{name_ranks(ranks)} {does}.",
            SUB_CAUSES[sub_cause][1],
            sure if len(ranks) <= len(at_peers) else sure - 0.2,
            ranks=ranks,
            detail={"sub_cause": sub_cause, "op": ", ".join(ops)},
            evidence=[piece for one in suspects[:SHOWN] for piece in one.evidence] + _seen(at_peers, witnesses),
        )


def _all_at_peers(at_peers: Mapping[int, Place], fleet: Fleet, witnesses: Witnesses) -> Iterator[Finding]:
    """Everybody whose stack is there waits for peers: in a rendezvous, for partners, or in equal or other calls."""
    kinds = {place.kind for place in at_peers.values()}
    absent = sorted(fleet.world - at_peers.keys())
    if kinds == {"rendezvous"}:
        yield _rendezvous(at_peers, absent, fleet, witnesses)
    elif suspects := [one for one in map(witnesses.suspect, absent) if one.sub_cause in ("dead", "stopped", "disk")]:
        yield from _gone(at_peers, suspects, fleet, witnesses)
    elif "p2p" in kinds:
        yield from _p2p(at_peers, fleet, witnesses)
    else:
        yield _in_collectives(at_peers, absent, witnesses)


def _rendezvous(at_peers: Mapping[int, Place], absent: Sequence[int], fleet: Fleet, witnesses: Witnesses) -> Finding:
    missing = f" {name_ranks(absent)} did not come." if absent else ""
    ops = ", ".join(sorted({place.op for place in at_peers.values()}))
    return Finding(
        "hang.rendezvous",
        "error",
        f"{name_ranks(sorted(at_peers))} wait for all ranks to meet, in {ops}.{missing}",
        "See whether the missing ranks' processes were started and reach MASTER_ADDR:MASTER_PORT; whether WORLD_SIZE "
        "is the number that was started.",
        0.8 if absent else 0.6,
        ranks=tuple(absent),
        evidence=_seen(at_peers, witnesses),
    )


def _gone(
    at_peers: Mapping[int, Place], suspects: Sequence[Suspect], fleet: Fleet, witnesses: Witnesses
) -> Iterator[Finding]:
    waits = "waits" if len(at_peers) == 1 else "wait"
    for sub_cause in sorted({one.sub_cause for one in suspects}):
        alike = [one for one in suspects if one.sub_cause == sub_cause]
        ranks = tuple(one.rank for one in alike)
        yield Finding(
            "hang.absent_rank",
            "error",
            f"{name_ranks(sorted(at_peers))} {waits} for {name_ranks(ranks)}, which {alike[0].does}.",
            alike[0].fix,
            0.85,
            ranks=ranks,
            detail={"sub_cause": sub_cause},
            evidence=[*(piece for one in alike[:SHOWN] for piece in one.evidence), *_seen(at_peers, witnesses)],
        )


def _p2p(at_peers: Mapping[int, Place], fleet: Fleet, witnesses: Witnesses) -> Iterator[Finding]:
    ranks = tuple(sorted(rank for rank, place in at_peers.items() if place.kind == "p2p"))
    calls = "; ".join(f"rank {rank} in {at_peers[rank].op} at {at_peers[rank].line}" for rank in ranks[:SHOWN])
    absent = sorted(fleet.world - at_peers.keys())
    if absent:
        yield unknown(f"{calls}. No stack of {name_ranks(absent)}.", [f"stack of {name_ranks(absent)}"])
        return
    yield Finding(
        "hang.p2p_unmatched",
        "error",
        f"{name_ranks(ranks)} wait in send or recv without a partner that answers: {calls}.",
        "Order sends and receives of a pair so that one side receives first, or post both with batch_isend_irecv.",
        0.7,
        ranks=ranks,
        evidence=_seen(at_peers, witnesses),
    )


def _in_collectives(at_peers: Mapping[int, Place], absent: Sequence[int], witnesses: Witnesses) -> Finding:
    lines = sorted({f"{place.op} at {place.line}" for place in at_peers.values()})
    where = "the same call" if len(lines) == 1 else f"{len(lines)} different calls"
    gone = f" No stack of {name_ranks(absent)}: the silent are the first suspects." if absent else ""
    return unknown(
        f"{name_ranks(sorted(at_peers))} wait in {where}: {'; '.join(lines[:SHOWN])}.{gone} Equal stacks "
        "do not tell a network fault from ranks that are one call apart: sequence numbers decide.",
        ["flight recorder dumps of all ranks (TORCH_FR_BUFFER_SIZE=2000), or NCCL RAS (port 28028)"],
        _seen(at_peers, witnesses),
    )


def _teardown(places: Mapping[int, Place], fleet: Fleet) -> Finding:
    ranks = tuple(sorted(places))
    return Finding(
        "hang.teardown",
        "error",
        f"{name_ranks(ranks)} hang after training, in {places[ranks[0]].line}.",
        "Call dist.destroy_process_group() on all ranks after the last collective has ended, before the interpreter "
        "exits; abort instead of destroying when a peer has failed.",
        0.8,
        ranks=ranks,
    )


def find_blocked_watchdogs(evidence: EvidenceSet) -> Iterator[Finding]:
    """Watchdog threads that are themselves inside a call that does not return."""
    for stack in evidence.of(Stack):
        for thread in stack.threads:
            names = [frame.name for frame in thread.frames]
            watching = _WATCHDOG.search(" ".join((thread.name, *names)))
            stuck = next((name for name in names if _BLOCKING.search(name)), "")
            if watching and stuck:
                yield Finding(
                    "hang.watchdog_blocked",
                    "error",
                    f"The watchdog of {_who(stack)} is stuck itself, in {stuck}: another thread holds what it waits "
                    "for, or the device does not answer.",
                    "Look at the main thread of that process and at its device; end all ranks together, since abort is "
                    "not collective; TORCH_NCCL_RETHROW_CUDA_ERRORS=0 and a newer NCCL help at the end of a job.",
                    0.7,
                    ranks=(stack.rank,) if stack.rank is not None else (),
                    hosts=(stack.host,) if stack.host else (),
                    evidence=[Evidence("stack", stack.where, " < ".join(names[:6]))],
                )


def _alone(stacks: Sequence[Stack]) -> Iterator[Finding]:
    """No stack waits for peers: a few places tell all the same, the others only say where ranks are."""
    if absent := absent_process(stacks):
        yield absent
        return
    told = False
    for stack in stacks:
        place = place_of(stack)
        if place.kind in TELLING_ALONE:
            told = True
            yield _telling(stack, place)
        elif ending := _tearing_down(stack):
            told = True
            yield _ending(stack, ending)
    if not told and any(place_of(stack).frame for stack in stacks):
        lines = dict.fromkeys(f"{_who(stack)} {_stands(place_of(stack))}{_beside(stack)}" for stack in stacks)
        yield unknown(
            f"No rank is known to wait for its peers: {'; '.join(list(lines)[:SHOWN])}.",
            MISSING,
            [Evidence("stack", stack.where, place_of(stack).line) for stack in stacks[:SHOWN]],
        )


def _tearing_down(stack: Stack) -> Thread | None:
    """The thread that destroys or aborts a communicator; a watchdog that does so has a finding of its own."""
    for thread in stack.threads:
        names = " ".join((thread.name, *(frame.name for frame in thread.frames)))
        if _ENDING.search(names) and not _WATCHDOG.search(names):
            return thread
    return None


def _ending(stack: Stack, thread: Thread) -> Finding:
    call = next(frame.name for frame in thread.frames if _ENDING.search(frame.name))
    main = "" if thread is stack.main else f", while its main thread {_stands(place_of(stack))}"
    return Finding(
        "hang.teardown",
        "error",
        f"{_who(stack)} does not get out of {call}{main}: it waits for the device or"
        " for peers that have left or do other things.",
        "Wait for all collectives and destroy the process group on all ranks together before the process ends; after "
        "an error end all ranks instead of aborting one; compare the NCCL version with its known bugs.",
        0.6,
        ranks=(stack.rank,) if stack.rank is not None else (),
        hosts=(stack.host,) if stack.host else (),
        evidence=[Evidence("stack", stack.where, " < ".join(frame.name for frame in thread.frames[:12]))],
        missing=MISSING,
    )


def _telling(stack: Stack, place: Place) -> Finding:
    sub_cause = place.kind
    does, fix = SUB_CAUSES[sub_cause]
    rest = "its peers wait for it in their next collective"
    return Finding(
        "hang.absent_rank",
        "error",
        f"{_who(stack)} {does} ({place.line}); {rest}.",
        fix,
        0.6,
        ranks=(stack.rank,) if stack.rank is not None else (),
        hosts=(stack.host,) if stack.host else (),
        detail={"sub_cause": sub_cause, "frame": str(place.frame)},
        evidence=[Evidence("stack", stack.where, f"{place.frame}")],
        missing=MISSING,
    )


def _who(stack: Stack) -> str:
    if stack.rank is not None:
        name = stack.where.rsplit("/", 1)[-1]
        return f"rank {stack.rank} ({stack.label or name})"
    return f"the process of {stack.where}"


def _stands(place: Place) -> str:
    does = {"gpu": "waits for the GPU to synchronize (its stream)", "proxy": "has only NCCL's idle helper threads"}
    where = place.line + (f" ← {place.frame}" if place.user and place.frame and place.frame != place.user else "")
    return f"{does.get(place.kind, 'is')} at {where}"


def _beside(stack: Stack) -> str:
    """What another thread of the process is at work on, while main waits."""
    busy = [one for one in working_threads(stack) if one is not stack.main and one.active]
    return f", and thread {busy[0].name or busy[0].os_id} works in {busy[0].frames[0]}" if busy else ""


def _seen(places: Mapping[int, Place], witnesses: Witnesses) -> list[Evidence]:
    return [
        Evidence("stack", f"rank {rank}, {witnesses.stacks[rank].where}", f"{places[rank].op} at {places[rank].line}")
        for rank in sorted(places)[:SHOWN]
    ]


RULES = (
    Rule(("hang.watchdog_blocked",), ("hang",), find_blocked_watchdogs),
    Rule(
        ("hang.absent_rank", "hang.rendezvous", "hang.p2p_unmatched", "hang.teardown", "hang.none_slow"),
        ("hang",),
        find_by_stacks,
    ),
)
