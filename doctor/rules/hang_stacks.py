"""Hangs judged by stacks: where dumps are missing or record nothing (gloo's send and recv, ranks without a group)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from doctor.evidence import EvidenceSet
from doctor.evidence.stacks import Stack
from doctor.rules import Rule
from doctor.rules.fleet import Fleet, fleet_of
from doctor.rules.hang import none_slow
from doctor.rules.lone_stacks import alone
from doctor.rules.places import Place, place_of, spot
from doctor.rules.suspects import Suspect, Witnesses, witnesses_of
from doctor.rules.waits import graph_of
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding, unknown

UNRECORDED = ("monitored_barrier",)
SHOWN = 8
BACKWARD_SURE = 0.6  # less than for ranks that are seen in a collective
GONE = ("dead", "stopped", "disk")  # what a process's state tells
GONE_SURE = 0.85


def find_by_stacks(evidence: EvidenceSet) -> Iterator[Finding]:
    """Findings from stacks, where the dumps do not show a stuck collective."""
    stacks, fleet = evidence.of(Stack), evidence.once(fleet_of)
    if not stacks or evidence.once(graph_of).points or fleet.moved(fleet.tables):
        return
    witnesses = evidence.once(witnesses_of)
    if witnesses.stepping:
        yield none_slow(witnesses.stepping)
        return
    places = {
        rank: place for rank in witnesses.stacks if not witnesses.is_dead(rank) and (place := witnesses.place(rank))
    }
    at_peers = {rank: place for rank, place in places.items() if place.waits_for_peers}
    elsewhere = {rank: place for rank, place in places.items() if not place.waits_for_peers}
    if at_peers and _recorded_as_done(at_peers, fleet):
        return
    if at_peers and elsewhere:
        yield from _absent(at_peers, _suspects(elsewhere, witnesses), witnesses)
    elif crowd := _in_backward(places, stacks):
        yield from _absent(crowd, _suspects(places.keys() - crowd.keys(), witnesses), witnesses, BACKWARD_SURE)
    elif at_peers:
        yield from _all_at_peers(at_peers, fleet, witnesses)
    elif elsewhere and all(place.kind == "teardown" for place in elsewhere.values()) and len(elsewhere) > 1:
        yield _teardown(elsewhere)
    else:
        yield from alone(stacks)


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
    looks = [(stack.rank, place_of(stack)) for stack in stacks if stack.rank in places]
    seen = {(rank, spot(at)) for rank, place in looks if (at := place.user or place.frame)}
    return crowd if len(seen) == len(places) else {}


def _suspects(ranks: Iterable[int], witnesses: Witnesses) -> list[Suspect]:
    return [witnesses.suspect(rank) for rank in sorted(ranks)]


def _absent(
    at_peers: Mapping[int, Place], suspects: Sequence[Suspect], witnesses: Witnesses, sure: float = 0.8
) -> Iterator[Finding]:
    """Some wait in calls to their peers; the suspects have not come, each for a reason that it may share."""
    alike: defaultdict[tuple[str, str], list[Suspect]] = defaultdict(list)
    for suspect in suspects:
        alike[suspect.sub_cause, suspect.note].append(suspect)
    ops = ", ".join(sorted({place.op for place in at_peers.values()}))
    waits = "waits" if len(at_peers) == 1 else "wait"
    for late in alike.values():
        ranks = tuple(suspect.rank for suspect in late)
        yield Finding(
            "hang.absent_rank",
            "error",
            f"{name_ranks(sorted(at_peers))} {waits} in {ops} for {name_ranks(ranks)}: "
            f"{name_ranks(ranks)} {late[0].does}.",
            late[0].fix,
            _sure(late, at_peers, sure),
            ranks=ranks,
            detail={"sub_cause": late[0].sub_cause, "op": ops},
            evidence=[piece for one in late[:SHOWN] for piece in one.evidence] + _seen(at_peers, witnesses),
        )


def _sure(late: Sequence[Suspect], at_peers: Mapping[int, Place], sure: float) -> float:
    if late[0].sub_cause in GONE:
        return GONE_SURE
    return sure if len(late) <= len(at_peers) else sure - 0.2


def _all_at_peers(at_peers: Mapping[int, Place], fleet: Fleet, witnesses: Witnesses) -> Iterator[Finding]:
    """Everybody whose stack is there waits for peers: in a rendezvous, for partners, or in equal or other calls."""
    kinds = {place.kind for place in at_peers.values()}
    absent = sorted(fleet.world - at_peers.keys())
    if kinds == {"rendezvous"}:
        yield _rendezvous(at_peers, absent, witnesses)
    elif gone := [one for one in _suspects(absent, witnesses) if one.sub_cause in GONE]:
        yield from _absent(at_peers, gone, witnesses)
    elif "p2p" in kinds:
        yield _p2p(at_peers, absent, witnesses)
    else:
        yield _in_collectives(at_peers, absent, witnesses)


def _rendezvous(at_peers: Mapping[int, Place], absent: Sequence[int], witnesses: Witnesses) -> Finding:
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


def _p2p(at_peers: Mapping[int, Place], absent: Sequence[int], witnesses: Witnesses) -> Finding:
    ranks = tuple(sorted(rank for rank, place in at_peers.items() if place.kind == "p2p"))
    calls = "; ".join(f"rank {rank} in {at_peers[rank].op} at {at_peers[rank].line}" for rank in ranks[:SHOWN])
    if absent:
        return unknown(f"{calls}. No stack of {name_ranks(absent)}.", [f"stack of {name_ranks(absent)}"])
    return Finding(
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


def _teardown(places: Mapping[int, Place]) -> Finding:
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


def _seen(places: Mapping[int, Place], witnesses: Witnesses) -> list[Evidence]:
    return [
        Evidence("stack", f"rank {rank}, {witnesses.stacks[rank].where}", f"{places[rank].op} at {places[rank].line}")
        for rank in sorted(places)[:SHOWN]
    ]


RULES = (
    Rule(
        ("hang.absent_rank", "hang.rendezvous", "hang.p2p_unmatched", "hang.teardown", "hang.none_slow"),
        ("hang",),
        find_by_stacks,
    ),
)
