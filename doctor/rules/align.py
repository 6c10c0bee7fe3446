"""Where the calls of a group's members part: alignment by (members, sequence number), also of wrapped buffers. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from doctor.evidence.rank_table import Signature
from doctor.rules.fleet import Group, Member

Calls = tuple[Signature, ...]


@dataclass(frozen=True)
class Divergence:
    """The first sequence number at which members of a group made different calls."""

    group: Group
    seq: int
    calls: Mapping[Calls, tuple[int, ...]]  # what was called → by which ranks
    shift: str = ""  # how the odd ones differ from there on: "extra" call, "missing" call, or not told

    @property
    def majority(self) -> Calls:
        return max(self.calls, key=lambda calls: (len(self.calls[calls]), [-rank for rank in self.calls[calls]]))

    @property
    def odd(self) -> tuple[int, ...]:
        """The ranks that did something else than most; all of them where there is no majority."""
        sizes = Counter(len(ranks) for ranks in self.calls.values())
        most = max(sizes)
        tie = sizes[most] > 1
        return tuple(
            sorted(rank for calls, ranks in self.calls.items() if tie or calls != self.majority for rank in ranks)
        )

    @property
    def only_sizes(self) -> bool:
        """Whether it is the same operation and type everywhere, with other sizes."""
        return len({tuple((one.op, one.dtype) for one in calls) for calls in self.calls}) == 1


def divergence_of(group: Group) -> Divergence | None:
    """The first difference between the members, or None. Members with equal digests are compared once."""
    classes: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
    for rank, member in sorted(group.seen.items()):
        if member.view.last >= 0:
            classes[member.view.first, member.view.last, member.view.digest].append(rank)
    if len(classes) < 2:
        return None
    ranks_of = list(classes.values())
    calls_of = [_fitting(group.seen[ranks[0]]) for ranks in ranks_of]
    start = max(first for first, _, _ in classes)
    for seq in range(start, max(last for _, last, _ in classes) + 1):
        made: defaultdict[Calls, list[int]] = defaultdict(list)
        for ranks, calls in zip(ranks_of, calls_of, strict=True):
            if seq in calls:
                made[calls[seq]] += ranks
        if len(_distinct(made)) > 1:
            ranks_by_call = {call: tuple(sorted(ranks)) for call, ranks in made.items()}
            return Divergence(group, seq, ranks_by_call, _shift(seq, ranks_by_call, group))
    return None


def _fitting(member: Member) -> dict[int, Calls]:
    return {seq: tuple(signatures) for seq, signatures in member.calls.items()}


def _distinct(made: Mapping[Calls, Sequence[int]]) -> set[tuple[tuple[str, int, int, str], ...]]:
    """What must agree: operation, elements and type; shapes of equal size do not matter."""
    return {tuple((one.op, one.numel_in, one.numel_out, one.dtype) for one in calls) for calls in made}


def _shift(seq: int, calls: Mapping[Calls, tuple[int, ...]], group: Group) -> str:
    """Whether the odd rank made a call too many or too few: then its later calls fit, one number off."""
    if len(calls) != 2:
        return ""
    few, many = sorted(calls, key=lambda call: len(calls[call]))
    odd, usual = (group.seen[calls[call][0]].calls for call in (few, many))
    if _same(odd, seq + 1, usual, seq):
        return "extra"
    return "missing" if _same(odd, seq, usual, seq + 1) else ""


def _same(left: Mapping[int, list[Signature]], at: int, right: Mapping[int, list[Signature]], there: int) -> bool:
    """Whether the calls from `at` on are those from `there` on, over what both have (three at most)."""
    pairs = [(left[at + step], right[there + step]) for step in range(3) if at + step in left and there + step in right]
    return bool(pairs) and all(one == other for one, other in pairs)
