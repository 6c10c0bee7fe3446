"""Groups made apart: in `new_group` ranks wait for the members, in older releases of torch for the whole world."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from doctor.evidence import EvidenceSet
from doctor.evidence.rank_table import Frame
from doctor.evidence.stacks import Stack
from doctor.rules import Rule
from doctor.rules.fleet import fleet_of
from doctor.rules.places import bare_name, place_of, spot
from doctor.rules.suspects import witnesses_of
from doctor.text import fold, name_ranks
from launcher.common.finding import Evidence, Finding

_MAKING = ("new_group", "split_group")
_TORCH = "torch/distributed/"


def find_groups_made_apart(evidence: EvidenceSet) -> Iterator[Finding]:
    """One finding where some ranks make a group, and others meanwhile another one or none."""
    witnesses = evidence.once(witnesses_of)
    making = {rank: frame for rank, stack in witnesses.stacks.items() if (frame := _making(stack))}
    spots = _spots(evidence) if making and not any(state.dead for state in witnesses.states.values()) else {}
    if len(spots) < 2:
        return
    odd = _odd(spots, making)
    told = "; ".join(f"{name_ranks(ranks)}: {where}" for where, ranks in sorted(spots.items(), key=lambda one: one[1]))
    yield Finding(
        "mesh.group_mismatch",
        "error",
        f"Ranks that make a process group wait there for their peers, and these stand at {len(spots)} places: {told}.",
        "Call new_group on every rank of the job, members or not, for the same groups in the same order.",
        0.8,
        ranks=odd,
        detail={"places": {where: fold(ranks) for where, ranks in spots.items()}},
        evidence=[
            Evidence("stack", f"rank {rank}, {witnesses.stacks[rank].where}", f"new_group at {spot(frame)}")
            for rank, frame in making.items()
        ],
    )


def _making(stack: Stack) -> Frame | None:
    """The line that makes a group: the first above torch's own."""
    names = [bare_name(frame) for frame in stack.main.frames]
    inside = max((index for index, name in enumerate(names) if name in _MAKING), default=None)
    if inside is None:
        return None
    return next((frame for frame in stack.main.frames[inside:] if _TORCH not in frame.filename), None)


def _spots(evidence: EvidenceSet) -> Mapping[str, tuple[int, ...]]:
    """Ranks by where they wait for their peers, in every look; none where one of them is at work.

    Ranks that make steps or calls between the looks are none of those that are waited for.
    """
    fleet = evidence.once(fleet_of)
    moving = {*evidence.once(witnesses_of).stepping, *fleet.moved(fleet.tables)}
    found: defaultdict[int, set[str]] = defaultdict(set)
    for stack in evidence.of(Stack):
        if stack.rank in moving:
            continue
        place, making = place_of(stack), _making(stack)
        at = making or place.user or place.frame
        if stack.rank is None or at is None or not (making or place.waits_for_peers):
            return {}
        found[stack.rank].add(f"{'new_group' if making else place.op} at {spot(at)}")
    if any(len(seen) > 1 for seen in found.values()):
        return {}
    spots: defaultdict[str, list[int]] = defaultdict(list)
    for rank, (only,) in sorted(found.items()):
        spots[only].append(rank)
    return {where: tuple(ranks) for where, ranks in spots.items()}


def _odd(spots: Mapping[str, tuple[int, ...]], making: Mapping[int, Frame]) -> tuple[int, ...]:
    """The smallest part of the ranks; of equal ones that which makes no group, else all of them."""
    fewest = min(map(len, spots.values()))
    smallest = [ranks for ranks in spots.values() if len(ranks) == fewest]
    without = [ranks for ranks in smallest if not set(ranks) & making.keys()]
    return tuple(sorted(rank for ranks in without or smallest for rank in ranks))


RULES = (Rule(("mesh.group_mismatch",), ("hang", "mesh"), find_groups_made_apart),)
