"""Who comes last to collectives, by how much, since when. Waiting hides a slow rank in step times, not here. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from doctor.evidence.rank_table import P2P
from doctor.rules.fleet import Fleet, Group, Member

MIN_CALLS = 8
PARTS, PERSISTENT = 6, 0.8  # of so many parts of the time a slow rank is the slowest in this share
CLOCKS_AGREE_S = 0.02
NS = 1e-9


@dataclass(frozen=True)
class Lateness:
    """How late the members of a group came, by call: seconds after the median of the others."""

    group: Group
    seqs: Sequence[int]
    times: Sequence[float]  # of each call: when the first came, seconds since the epoch
    late: Mapping[int, Sequence[float]]
    span_s: float  # from the first call to the last
    aligned: bool  # clocks of hosts were brought together by the calls themselves

    def blame(self, calls: range | None = None) -> dict[int, float]:
        """rank → seconds for which it was the last and all others waited for it alone, in some calls or all."""
        blamed: defaultdict[int, float] = defaultdict(float)
        for index in calls or range(len(self.seqs)):
            ordered = sorted(self.late, key=lambda rank: self.late[rank][index])
            blamed[ordered[-1]] += self.late[ordered[-1]][index] - self.late[ordered[-2]][index]
        return dict(blamed)

    def persists(self, rank: int) -> bool:
        """Whether `rank` is the one to blame in nearly every part of the time since it began: a busy machine delays
        one rank now and another then.
        """
        begun = onset(self.late[rank]) or 0
        length = max(1, (len(self.seqs) - begun) // PARTS)
        parts = [self.blame(range(at, at + length)) for at in range(begun, len(self.seqs) - length + 1, length)]
        worst = [max(blamed, key=lambda one: blamed[one]) for blamed in parts]
        return worst.count(rank) >= PERSISTENT * len(worst)

    def by_host(self, hosts: Mapping[int, str]) -> Lateness:
        """The same with hosts in the place of ranks: a host comes with the first of its ranks. Keys are any of them."""
        ranks_of: defaultdict[str, list[int]] = defaultdict(list)
        for rank in self.late:
            ranks_of[hosts.get(rank, "")].append(rank)
        late = {ranks[0]: [min(self.late[one][index] for one in ranks) for index in range(len(self.seqs))]
                for ranks in ranks_of.values()}  # fmt: skip
        return Lateness(self.group, self.seqs, self.times, late, self.span_s, self.aligned)


def lateness_of(group: Group, fleet: Fleet) -> Lateness | None:
    """Arrivals at the collectives that all members recorded; None where there are too few members or calls."""
    if len(group.seen) < 2 or set(group.members) - group.seen.keys():
        return None
    created = {rank: _created(member) for rank, member in group.seen.items()}
    common = sorted(set.intersection(*(set(calls) for calls in created.values())))
    if len(common) < MIN_CALLS:
        return None
    arrivals = {rank: [calls[seq] for seq in common] for rank, calls in created.items()}
    one_host = len({fleet.hosts.get(rank, "") for rank in arrivals}) == 1
    late = _late(arrivals) if one_host else _aligned(_late(arrivals))
    first = [min(calls[index] for calls in arrivals.values()) * NS for index in range(len(common))]
    return Lateness(group, common, first, late, first[-1] - first[0], not one_host)


def _created(member: Member) -> dict[int, int]:
    calls = zip(*member.table.calls.unpack(), strict=True)
    return {seq: at for group, seq, _, flags, at in calls if group == member.index and not flags & P2P and at}


def _late(arrivals: Mapping[int, Sequence[int]]) -> dict[int, list[float]]:
    middle = [median(column) for column in zip(*arrivals.values(), strict=True)]
    return {rank: [(at - mid) * NS for at, mid in zip(calls, middle, strict=True)] for rank, calls in arrivals.items()}


def _aligned(late: Mapping[int, Sequence[float]]) -> dict[int, list[float]]:
    """Bring the hosts' clocks together by the calls at which all came closest: right after a synchronising call.

    Clocks that already agree there are left alone. A rank that is late at every call by the same time cannot be told
    from a wrong clock.
    """
    columns = list(zip(*late.values(), strict=True))
    nearest = sorted(range(len(columns)), key=lambda index: max(columns[index]) - min(columns[index]))
    nearest = nearest[: max(1, len(columns) // 10)]
    offsets = {rank: median([values[index] for index in nearest]) for rank, values in late.items()}
    if max(offsets.values()) - min(offsets.values()) < CLOCKS_AGREE_S:
        return {rank: list(values) for rank, values in late.items()}
    return {rank: [value - offsets[rank] for value in values] for rank, values in late.items()}


def onset(values: Sequence[float]) -> int | None:
    """Index at which a series rises for good (largest difference of means), None when it was high from the start."""
    total, left, best, at = sum(values), 0.0, 0.0, None
    count = len(values)
    for index in range(1, count):
        left += values[index - 1]
        before, after = left / index, (total - left) / (count - index)
        gain = (after - before) * (index * (count - index)) ** 0.5
        if gain > best and after > 3 * max(before, 0.0) and index >= 3:
            best, at = gain, index
    return at
