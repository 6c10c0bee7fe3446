"""Other sizes in one call on gloo: the process that received too much aborts, it or the one that sent is odd.

A call that one rank leaves out shows so too, where its next call is of another size: then the places where the ranks
were when the abort ended them tell who was elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from doctor.evidence import EvidenceSet
from doctor.evidence.gloo import LostPeer, SizeClash
from doctor.evidence.stacks import Stack, Thread
from doctor.rules import Rule
from doctor.rules.fleet import Fleet, fleet_of
from doctor.rules.places import Place, place_of, place_of_thread
from doctor.rules.suspects import SUB_CAUSES
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding


def find_clash(evidence: EvidenceSet) -> Iterator[Finding]:
    """One finding for who was elsewhere, or for each size that did not fit."""
    clashes, fleet = evidence.of(SizeClash), evidence.once(fleet_of)
    places = _places(evidence) if clashes else {}
    odd = _elsewhere(places)
    if odd:
        yield _apart(odd, places, clashes[0], fleet)
        return
    for clash in clashes:
        yield _other_size(clash, fleet)


def _places(evidence: EvidenceSet) -> dict[int, Place]:
    """Where each rank was: by the stack that its abort left, or the traceback of its loss."""
    places = {one.rank: place_of(one) for one in evidence.of(Stack) if one.rank is not None}
    lost = {one.rank: place_of_thread(Thread("", tuple(one.frames))) for one in evidence.of(LostPeer)}
    return {**{rank: place for rank, place in lost.items() if rank is not None}, **places}


def _elsewhere(places: Mapping[int, Place]) -> list[int]:
    """The ranks of the smaller part, where all others were at one place of the program."""
    parts: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, place in sorted(places.items()):
        parts[place.kind, place.line].append(rank)
    sizes = sorted(parts.values(), key=len)
    return sizes[0] if len(sizes) == 2 and len(sizes[0]) < len(sizes[1]) else []


def _apart(odd: list[int], places: Mapping[int, Place], clash: SizeClash, fleet: Fleet) -> Finding:
    others = [rank for rank in sorted(places) if rank not in odd]
    here, there = places[odd[0]], places[others[0]]
    gradients = there.kind == "backward"  # its peers reduce gradients that it does not have
    sub_cause = "unused_parameter" if gradients else ""
    return Finding(
        "hang.absent_rank" if gradients else "hang.desync",
        "error",
        f"{name_ranks(odd)} was at {here.line} while {name_ranks(others)} were at {there.line}: a call of one met a "
        "call of the others of another size, and gloo aborted"
        + (f"; {name_ranks(odd)} {SUB_CAUSES[sub_cause][0]} in the backward pass." if gradients else "."),
        SUB_CAUSES[sub_cause][1] if gradients else "Let every rank make the same calls in the same order.",
        0.8,
        ranks=tuple(odd),
        hosts=fleet.hosts_of(odd),
        coordinates=fleet.coordinates_of(odd),
        detail={"received": clash.received, "expected": clash.expected}
        | ({"sub_cause": sub_cause} if gradients else {}),
        evidence=[
            Evidence("log", clash.where, f"op.preamble.length {clash.received} vs {clash.expected}"),
            *(Evidence("stack", f"rank {rank}", place.line) for rank, place in sorted(places.items())[:8]),
        ],
    )


def _other_size(clash: SizeClash, fleet: Fleet) -> Finding:
    ranks: tuple[int, ...] = ()
    if clash.rank is not None:
        size = len(fleet.world) or clash.rank + 2
        ranks = tuple(sorted({clash.rank, (clash.rank + 1) % size}))  # gloo's rings send to the rank before
    who = f"rank {clash.rank}" if clash.rank is not None else "a process"
    return Finding(
        "hang.shape_mismatch",
        "error",
        f"{who} received {clash.received} bytes where its own call expected {clash.expected}, and aborted: "
        f"{name_ranks(ranks) if ranks else 'two ranks'} gave other sizes or types to one call, or made different "
        "calls.",
        "Make the tensor equally large on all ranks; TORCH_DISTRIBUTED_DEBUG=DETAIL names the call before gloo aborts.",
        0.7,
        ranks=ranks,
        hosts=fleet.hosts_of(ranks),
        coordinates=fleet.coordinates_of(ranks),
        detail={"received": clash.received, "expected": clash.expected},
        evidence=[Evidence("log", clash.where, f"op.preamble.length {clash.received} vs {clash.expected}")],
    )


RULES = (Rule(("hang.shape_mismatch", "hang.desync", "hang.absent_rank"), ("hang",), find_clash),)
