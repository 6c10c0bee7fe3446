"""Other sizes in one call on gloo: the process that received too much aborts, it or the one that sent is odd.

A call that one rank leaves out shows so too, where its next call is of another size: then the places where the ranks
were when the abort ended them tell who was elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from doctor.evidence import EvidenceSet
from doctor.evidence.gloo import LostPeer, SizeClash
from doctor.evidence.rank_table import up_to_largest
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
    odd = _elsewhere(places, fleet)
    if odd:
        yield _apart(odd, places, clashes[0])
        return
    for clash in clashes:
        yield _other_size(clash, fleet)


def _places(evidence: EvidenceSet) -> dict[int, Place]:
    """Where each rank was: by the stack that its abort left, or the traceback of its loss."""
    places = {one.rank: place_of(one) for one in evidence.of(Stack) if one.rank is not None}
    lost = {one.rank: place_of_thread(Thread("", tuple(one.frames))) for one in evidence.of(LostPeer)}
    return {**{rank: place for rank, place in lost.items() if rank is not None}, **places}


def _elsewhere(places: Mapping[int, Place], fleet: Fleet) -> list[int]:
    """The ranks of the smaller part, where all others were at one place; or those that left no word of where."""
    parts: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, place in sorted(places.items()):
        parts[place.kind, place.line].append(rank)
    world = fleet.world.union(up_to_largest(places))
    silent = sorted(world - places.keys())
    sizes = sorted([*parts.values(), silent] if len(parts) == 1 and silent else parts.values(), key=len)
    return sizes[0] if len(sizes) == 2 and len(sizes[0]) < len(sizes[1]) else []


def _apart(odd: list[int], places: Mapping[int, Place], clash: SizeClash) -> Finding:
    others = [rank for rank in sorted(places) if rank not in odd]
    here, there = places.get(odd[0]), places[others[0]]
    where = f"was at {here.line}" if here else "was elsewhere and left no word"
    gradients = there.kind == "backward"
    sub_cause = "rank0_only" if odd == [0] else "unused_parameter" if gradients and here else "uneven_data"
    hint = " or it left out gradients that they reduce (a parameter that it did not use)" if gradients else ""
    return Finding(
        "hang.desync",
        "error",
        f"{name_ranks(odd)} {where} while {name_ranks(others)} were at {there.line}: {name_ranks(odd)} made a call "
        f"that they did not make{hint}, and gloo aborted ({clash.received} bytes met {clash.expected}).",
        SUB_CAUSES[sub_cause][1],
        0.8,
        ranks=tuple(odd),
        detail={"received": clash.received, "expected": clash.expected, "sub_cause": sub_cause},
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
        detail={"received": clash.received, "expected": clash.expected},
        evidence=[Evidence("log", clash.where, f"op.preamble.length {clash.received} vs {clash.expected}")],
    )


RULES = (Rule(("hang.shape_mismatch", "hang.desync"), ("hang",), find_clash),)
