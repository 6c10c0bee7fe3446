"""Fleet: all ranks' tables joined, groups by their members. Pure; the order of files never matters."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from doctor.evidence import EvidenceSet
from doctor.evidence.flight_recorder import ProcessView
from doctor.evidence.job import JobFacts
from doctor.evidence.nccl_log import NcclProcess
from doctor.evidence.rank_table import (
    Call,
    GroupView,
    RankTable,
    Signature,
    fold_ranks,
    unfold_ranks,
    up_to_largest,
)
from doctor.evidence.stacks import Stack
from doctor.text import fold
from launcher.spec import format_coordinate

WORLD = "default_pg"


@dataclass(frozen=True)
class Member:
    """One rank's part in a group."""

    rank: int
    view: GroupView
    table: RankTable
    index: int  # of the group in the table

    @property
    def behind_sure(self) -> bool:
        """Whether `enqueued` is all that the rank issued: a cut-off dump without status does not tell."""
        return not self.table.truncated or self.view.enqueued > self.view.last

    @cached_property
    def calls(self) -> Mapping[int, list[Signature]]:
        return self.table.calls_of(self.index)

    def newest_call(self, seq: int) -> Call | None:
        """The kept call with this sequence number and its frames, if it is one of the newest."""
        for call in self.table.newest:
            if call.group == self.index and call.seq == seq and not call.flags & 4:
                return call
        return None


@dataclass(frozen=True)
class Group:
    """A process group: its members are its identity."""

    members: tuple[int, ...]
    name: str
    desc: str
    seen: Mapping[int, Member]  # rank -> part, of the ranks whose dumps are there
    sure: bool  # the members are told by the dumps, not inferred from equal names

    @property
    def kind(self) -> str:
        """What groups of the same axis have in common."""
        return self.desc or self.name

    @property
    def label(self) -> str:
        title = "the world group" if self.desc == WORLD else f"group {self.kind!r}"
        return f"{title} (ranks {fold(self.members)})"


@dataclass(frozen=True)
class Fleet:
    """All that is known of the ranks of one job."""

    tables: Mapping[int, RankTable]  # the newest of each rank
    earlier: Mapping[int, RankTable]  # the first sample, where there are two
    groups: Sequence[Group]
    world: frozenset[int]
    hosts: Mapping[int, str]
    coordinates: Mapping[int, str]

    @property
    def silent(self) -> frozenset[int]:
        """Ranks that must exist but gave no dump."""
        return self.world - self.tables.keys()

    def moved(self, ranks: Iterable[int]) -> list[int]:
        """Those of `ranks` that made calls between the two samples."""
        return [rank for rank in sorted(set(ranks) & self.earlier.keys()) if self._calls_since(rank)]

    def _calls_since(self, rank: int) -> bool:
        now, before = self.tables[rank], self.earlier[rank]
        return sum(group.enqueued for group in now.groups) > sum(group.enqueued for group in before.groups)

    def hosts_of(self, ranks: Iterable[int]) -> tuple[str, ...]:
        return tuple(sorted({self.hosts[rank] for rank in ranks if rank in self.hosts}))

    def coordinates_of(self, ranks: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.coordinates[rank] for rank in ranks if rank in self.coordinates)


def fleet_of(evidence: EvidenceSet) -> Fleet:
    """Join the tables, process views and the job's record. Use as `evidence.once(fleet_of)`."""
    newest, earlier = _samples(_ranked(evidence.of(RankTable)))
    views = {view.rank: view for view in sorted(evidence.of(ProcessView), key=lambda view: view.time)}
    tables = {rank: _with_members(table, views.get(rank)) for rank, table in sorted(newest.items())}
    job = max(evidence.of(JobFacts), key=lambda job: job.attempt, default=None)
    stacks = evidence.of(Stack)
    world = _world(tables, job, stacks)
    hosts = _logged_hosts(evidence.of(NcclProcess))
    hosts |= {one.rank: one.host for one in stacks if one.rank is not None and one.host}
    hosts |= {view.rank: view.host for view in views.values()} | dict(job.hosts if job else {})
    coordinates = {rank: format_coordinate(at) for rank, at in job.coordinates.items()} if job else {}
    return Fleet(tables, earlier, _groups(tables, world), world, hosts, coordinates)


def _logged_hosts(processes: Sequence[NcclProcess]) -> dict[int, str]:
    """Hosts of ranks as NCCL's log tells them; of none that several claim: those are ranks of smaller groups."""
    claims: defaultdict[int, set[str]] = defaultdict(set)
    for one in processes:
        if one.rank is not None and one.host:
            claims[one.rank].add(one.host)
    return {rank: host for rank, (host, *others) in claims.items() if not others}


def _ranked(tables: Sequence[RankTable]) -> list[RankTable]:
    """Tables with their ranks; where names do not say `rank`, the one number that tells the files apart is taken."""
    known = [table for table in tables if table.rank is not None]
    nameless = [table for table in tables if table.rank is None]
    numbers = [tuple(map(int, re.findall(r"\d+", table.where))) for table in nameless]
    if not nameless or len({len(one) for one in numbers}) != 1:
        return known
    columns = list(zip(*numbers, strict=True))
    telling = [column for column in columns if len(set(column)) == len(column)]
    if not telling:
        return known
    ranks = min(telling, key=lambda column: (set(column) != set(range(len(column))), max(column)))
    return known + [replace(table, rank=rank) for table, rank in zip(nameless, ranks, strict=True)]


def _samples(tables: Sequence[RankTable]) -> tuple[dict[int, RankTable], dict[int, RankTable]]:
    """(newest, earlier sample) of each rank; an older attempt's dumps are left out."""
    by_rank: defaultdict[int, list[RankTable]] = defaultdict(list)
    for table in tables:
        if table.rank is not None:
            by_rank[table.rank].append(table)
    newest, earlier = {}, {}
    for rank, found in by_rank.items():
        last = max(map(_attempt, found))
        same = [one for one in found if _attempt(one) == last]
        same = sorted(same, key=_age) if len(same) > 1 else same
        newest[rank] = same[-1]
        if len(same) > 1:
            earlier[rank] = same[0]
    return newest, earlier


def _attempt(table: RankTable) -> int:
    found = re.search(r"attempt-(\d+)", table.where)
    return int(found[1]) if found else 0


def _age(table: RankTable) -> tuple[int, int, int, str]:
    progress = sum(group.enqueued for group in table.groups)
    return (progress, table.newest_ns, sum(group.completed for group in table.groups), table.where)


def _with_members(table: RankTable, view: ProcessView | None) -> RankTable:
    """Fill in the members that a dump does not tell from what the process itself knew."""
    if view is None:
        return table
    groups = tuple(
        replace(
            group, ranks=fold_ranks(sorted(view.groups[group.name][1])), desc=group.desc or view.groups[group.name][0]
        )
        if not group.ranks and group.name in view.groups
        else group
        for group in table.groups
    )
    return replace(table, groups=groups)


def _world(tables: Mapping[int, RankTable], job: JobFacts | None, stacks: Sequence[Stack]) -> frozenset[int]:
    folded = {group.ranks for table in tables.values() for group in table.groups}
    told = {rank for ranks in folded for rank in unfold_ranks(ranks)}
    ranks = set(tables) | told | set(job.hosts if job else ()) | {one.rank for one in stacks if one.rank is not None}
    return frozenset(up_to_largest(ranks))


def _groups(tables: Mapping[int, RankTable], world: frozenset[int]) -> list[Group]:
    told: defaultdict[str, list[Member]] = defaultdict(list)
    named: defaultdict[tuple[str, str], list[Member]] = defaultdict(list)
    for rank, table in tables.items():
        for index, view in enumerate(table.groups):
            if view.ranks:
                told[view.ranks].append(Member(rank, view, table, index))
            else:
                named[view.name, view.desc].append(Member(rank, view, table, index))
    for (name, desc), found in list(named.items()):
        home = _told_elsewhere(name, desc, found, told)
        if home:
            told[home] += found
            del named[name, desc]
    groups = [group for ranks, found in told.items() for group in _told_groups(unfold_ranks(ranks), found)]
    groups += [_inferred(found, world) for found in named.values()]
    return sorted(groups, key=lambda group: (group.members, group.name, group.desc))


def _told_elsewhere(name: str, desc: str, found: Sequence[Member], told: Mapping[str, Sequence[Member]]) -> str:
    """The (folded) members that other ranks' dumps give to a group of this name (dumps of mixed versions)."""
    for ranks, known in told.items():
        same_name = any((one.view.name, one.view.desc) == (name, desc) for one in known)
        if same_name and {one.rank for one in found} <= set(unfold_ranks(ranks)):
            return ranks
    return ""


def _told_groups(members: tuple[int, ...], found: Sequence[Member]) -> list[Group]:
    """Groups with these members: usually one; where a rank has two, their names keep them apart."""
    ranks = Counter(one.rank for one in found)
    if max(ranks.values()) == 1:
        return [_group(members, found)]
    by_name: defaultdict[str, list[Member]] = defaultdict(list)
    for one in found:
        by_name[one.view.name].append(one)
    return [_group(members, part) for part in by_name.values()]


def _group(members: tuple[int, ...], found: Sequence[Member]) -> Group:
    first = min(found, key=lambda one: one.rank)
    desc = first.view.desc if first.view.desc != "undefined" else ""
    return Group(members, first.view.name, desc, {one.rank: one for one in found}, sure=True)


def _inferred(found: Sequence[Member], world: frozenset[int]) -> Group:
    view = found[0].view
    whole = view.desc == WORLD or (view.name == "0" and not view.desc)
    members = tuple(sorted(world if whole else {one.rank for one in found}))
    desc = view.desc or (WORLD if whole else "")
    return Group(members, view.name, desc, {one.rank: one for one in found}, sure=whole)
