"""Is the mesh where it should be: axes inside nodes, ranks where they were planned, groups that agree."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from doctor.evidence import EvidenceSet
from doctor.evidence.flight_recorder import ProcessView
from doctor.evidence.job import JobFacts
from doctor.evidence.rank_table import unfold_ranks
from doctor.rules import Rule, healthy
from doctor.rules.fleet import Fleet, fleet_of
from doctor.text import fold, fold_hosts, name_ranks
from launcher.common.binding import RankReport
from launcher.common.finding import Evidence, Finding, unknown
from launcher.common.verify import verify

NEAR_AXES = ("tp", "ep", "cp")  # they talk within every layer
SHOWN = 6


def find_mesh_faults(evidence: EvidenceSet) -> list[Finding]:
    """Everything about the mesh that the job's record and the dumps show."""
    fleet, jobs = evidence.once(fleet_of), evidence.of(JobFacts)
    found = list(_mismatched(fleet))
    for job in jobs[-1:]:
        found += [*_degrees(job), *_crossing(job), *_misplaced(job, evidence.of(ProcessView), evidence.of(RankReport))]
    return found


def answer_mesh(evidence: EvidenceSet) -> Iterator[Finding]:
    """For the question itself: whether there was anything to compare."""
    if evidence.of(JobFacts) or any(group.sure for group in evidence.once(fleet_of).groups):
        yield healthy("groups agree on their members, and axes lie where they were planned")
    else:
        yield unknown("Neither a job's record nor dumps tell where the ranks are.", ["job.json, or dumps of all ranks"])


def _degrees(job: JobFacts) -> Iterator[Finding]:
    product = math.prod(degree for axis, degree in job.mesh.items() if axis != "ep")
    if job.mesh and job.world_size and product != job.world_size:
        axes = " × ".join(f"{axis}={degree}" for axis, degree in job.mesh.items() if axis != "ep")
        yield Finding(
            "mesh.degree_mismatch",
            "error",
            f"The mesh {axes} has {product} ranks, the job has {job.world_size}.",
            "Make the product of the degrees equal to the number of ranks.",
            evidence=[Evidence("job", job.where, axes)],
        )


def _crossing(job: JobFacts) -> Iterator[Finding]:
    """tp, cp (and so ep) groups whose ranks lie on several hosts though they would fit one."""
    per_host = max((list(job.hosts.values()).count(host) for host in set(job.hosts.values())), default=0)
    for axis in NEAR_AXES:
        if not 1 < job.mesh.get(axis, 1) <= per_host:
            continue
        split = {
            ranks: hosts for ranks in groups_of(job, axis) if len(hosts := {job.hosts[rank] for rank in ranks}) > 1
        }
        if split:
            ranks = sorted({rank for group in split for rank in group})
            across = sorted({host for found in split.values() for host in found})
            yield Finding(
                "mesh.axis_crosses_node",
                "warning",
                f"{len(split)} of the {axis} groups span hosts ({fold_hosts(across)}), though {axis}="
                f"{job.mesh[axis]} fits the {per_host} ranks of one: ranks {fold(ranks)}.",
                f"Put {axis} innermost (dlaunch place --mesh …), or order the ranks so that each {axis} group is on "
                "one host.",
                0.9,
                ranks=tuple(ranks),
                hosts=tuple(across),
                detail={"axis": axis, "groups": [fold(group) for group in split]},
                evidence=[Evidence("job", job.where, f"{axis} {fold(group)} on {fold_hosts(split[group])}")
                          for group in list(split)[:SHOWN]],
            )  # fmt: skip


def groups_of(job: JobFacts, axis: str) -> Sequence[tuple[int, ...]]:
    """Ranks that differ in `axis` alone."""
    groups: defaultdict[tuple[tuple[str, int], ...], list[int]] = defaultdict(list)
    for rank, at in job.coordinates.items():
        if axis in at:
            groups[tuple((name, index) for name, index in at.items() if name != axis)].append(rank)
    return [tuple(sorted(ranks)) for ranks in groups.values()]


def _misplaced(job: JobFacts, views: Sequence[ProcessView], reports: Sequence[RankReport]) -> list[Finding]:
    """Ranks that are on other hosts, devices, CPUs or NICs than planned.

    Where dumps tell the host they count; where hosts call themselves otherwise than the plan does they tell nothing.
    """
    told = {report.rank: report for report in reports}
    hosts = {view.rank: view.host for view in views}
    if set(hosts.values()) <= set(job.hosts.values()):
        told |= {rank: replace(told.get(rank, RankReport(rank, host)), host=host) for rank, host in hosts.items()}
    return verify(job.plan, [told[rank] for rank in sorted(told)])


def _mismatched(fleet: Fleet) -> Iterator[Finding]:
    """A rank that others count into a group of some name, and that itself has other members under that name."""
    own = {(rank, view.name): view.ranks for rank, table in fleet.tables.items() for view in table.groups if view.ranks}
    odd: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for name, ranks in {(name, ranks) for (_, name), ranks in own.items()}:
        for other in unfold_ranks(ranks):
            theirs = own.get((other, name), ranks)
            if theirs != ranks:
                left, right = sorted((ranks, theirs))
                odd[name, left, right].add(other)
    for (name, left, right), disagreeing in sorted(odd.items()):
        yield Finding(
            "mesh.group_mismatch",
            "error",
            f"Group {name!r} has members {left} on some ranks and {right} on others: {name_ranks(disagreeing)} "
            "do not agree.",
            "Build the groups from the same list on every rank, in the same order (new_group is itself a collective).",
            0.95,
            ranks=tuple(sorted(disagreeing)),
            detail={"group": name, "members": [left, right]},
        )


CODES = (
    "mesh.axis_crosses_node",
    "mesh.rank_map_differs",
    "mesh.device_order",
    "mesh.nic_far",
    "mesh.numa_binding",
    "mesh.group_mismatch",
    "mesh.degree_mismatch",
)
RULES = (Rule(CODES, ("mesh",), find_mesh_faults), Rule(("unknown",), ("mesh",), answer_mesh, alone=True))
