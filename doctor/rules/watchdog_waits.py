"""torch's watchdog lines as a table: by group, where each rank gave up and how far it had come. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from doctor.evidence import EvidenceSet
from doctor.evidence.watchdog import GroupProgress, WorkTimeout
from launcher.common.finding import Evidence


@dataclass
class Waits:
    """One group's part of the table."""

    group: str
    timeouts: dict[int, WorkTimeout] = field(default_factory=dict)  # rank → where it gave up
    progress: dict[int, GroupProgress] = field(default_factory=dict)  # rank → how far it had come

    @property
    def title(self) -> str:
        return f"group {self.group}" if self.group else "one group"

    @property
    def quotes(self) -> tuple[Evidence, ...]:
        found = [self.timeouts[rank] for rank in sorted(self.timeouts)][:4]
        return tuple(Evidence("watchdog", one.where, one.text) for one in found)

    @property
    def time(self) -> float | None:
        return min((one.time for one in self.timeouts.values() if one.time is not None), default=None)

    def numbers(self) -> dict[int, list[int]]:
        """sequence number → the ranks that gave up there."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for rank, one in sorted(self.timeouts.items()):
            found[one.seq].append(rank)
        return dict(sorted(found.items()))


def waits_of(evidence: EvidenceSet) -> Sequence[Waits]:
    """All groups of which a rank gave up, or told how far it had come. Use as `evidence.once(waits_of)`."""
    groups: dict[str, Waits] = {}
    progress = _in_one_group(evidence)
    for one in evidence.of(WorkTimeout):
        rank = -1 if one.rank is None else one.rank
        waits = groups.setdefault(_group(one, progress), Waits(_group(one, progress)))
        old = waits.timeouts.get(rank)
        if old is None or one.seq < old.seq:
            waits.timeouts[rank] = one
    for told in progress:
        if told.rank is not None:
            groups.setdefault(told.group, Waits(told.group)).progress[told.rank] = told
    return [groups[name] for name in sorted(groups)]


def _in_one_group(evidence: EvidenceSet) -> Sequence[GroupProgress]:
    """What ranks told of their groups. Where the timeouts name no group and all else is of one, it is the same."""
    told = evidence.of(GroupProgress)
    nameless = not any(one.group for one in evidence.of(WorkTimeout))
    unexplained = not any(_group(one, told) for one in evidence.of(WorkTimeout))
    if nameless and unexplained and len({one.group for one in told}) == 1:
        return [replace(one, group="") for one in told]
    return told


def _group(timeout: WorkTimeout, progress: Sequence[GroupProgress]) -> str:
    """The group of a wait. Where its line names none, another line of the same rank about the same number does."""
    if timeout.group:
        return timeout.group
    same = {one.group for one in progress if one.rank == timeout.rank and one.failed_at == timeout.seq and one.group}
    return next(iter(same)) if len(same) == 1 else ""
