"""The plan against what the ranks reported after start: findings where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from launcher.common.finding import Evidence, Finding
from launcher.placement.binding import Binding, bind, parse_cpus
from launcher.placement.result import Placement
from launcher.spec import format_coordinate
from launcher.topology.model import Device, HostTopology


@dataclass(frozen=True)
class RankReport:
    """What one rank said of itself; None where it could not tell. `cpus` is its CPU list as the kernel writes it."""

    rank: int
    host: str
    uuid: str | None = None
    bdf: str | None = None
    cpus: str | None = None
    nic: str | None = None


def verify(plan: Placement, reports: Sequence[RankReport], topologies: Mapping[str, HostTopology]) -> list[Finding]:
    """mesh.rank_map_differs, mesh.device_order, mesh.nic_far and mesh.numa_binding, the first being the gravest.

    A rank on another host is judged by its host only. A rank that did not report is named in `missing`.
    """
    by_rank = {report.rank: report for report in reports}
    silent = [rank for rank in range(plan.mesh.world_size) if rank not in by_rank]
    moved = [report for report in reports if report.host != plan.node_of(report.rank).host]
    settled = [report for report in reports if report.host == plan.node_of(report.rank).host]
    bindings = {
        (node.host, binding.local_rank): binding
        for node in plan.nodes
        if node.host in topologies
        for binding in bind(topologies[node.host], node.indexes, plan.nproc_per_node)
    }
    found = [
        rank_map(plan, moved, silent),
        device_order(plan, settled, topologies),
        nic_far(plan, settled, topologies),
        numa_binding(plan, settled, bindings),
    ]
    return [finding for finding in found if finding is not None]


def finding(plan: Placement, code: str, ranks: Sequence[int], cause: str, fix: str, lines: Sequence[str]) -> Finding:
    """A warning about `ranks`, with one line of evidence for each of the first ten."""
    return Finding(
        code,
        "warning",
        cause,
        fix,
        ranks=tuple(ranks),
        hosts=tuple(dict.fromkeys(plan.node_of(rank).host for rank in ranks)),
        coordinates=tuple(format_coordinate(plan.mesh.coordinate(rank)) for rank in ranks),
        evidence=tuple(
            Evidence("binding", f"rank {rank}", line) for rank, line in zip(ranks, lines[:10], strict=False)
        ),
    )


def rank_map(plan: Placement, moved: Sequence[RankReport], silent: Sequence[int]) -> Finding | None:
    if not moved:
        return None
    first = moved[0]
    found = finding(
        plan,
        "mesh.rank_map_differs",
        [report.rank for report in moved],
        f"{len(moved)} of {plan.mesh.world_size} ranks run on other hosts than planned: rank {first.rank} is on "
        f"{first.host} instead of {plan.node_of(first.rank).host}; the rendezvous gave nodes other ranks",
        "use static rendezvous with --node-rank (dlaunch does), not c10d, which sorts host names as strings",
        [f"planned on {plan.node_of(report.rank).host}, runs on {report.host}" for report in moved],
    )
    return replace(found, missing=tuple(f"rank {rank} did not report" for rank in silent))


def device_order(
    plan: Placement, reports: Sequence[RankReport], topologies: Mapping[str, HostTopology]
) -> Finding | None:
    """Another device than planned, by UUID, or by PCI address where no UUID is known."""
    wrong = [
        (r, expected)
        for r in reports
        if (expected := planned_device(plan, r.rank, topologies)) and differs(r, expected)
    ]
    if not wrong:
        return None
    first, expected = wrong[0]
    return finding(
        plan,
        "mesh.device_order",
        [report.rank for report, _ in wrong],
        f"{len(wrong)} ranks use other devices than planned: rank {first.rank} on {first.host} uses "
        f"{first.uuid or first.bdf} instead of {expected.uuid or expected.bdf} ({expected.name})",
        "give devices by UUID in CUDA_VISIBLE_DEVICES, and let each rank use the ordinal of its local rank",
        [f"planned {expected.uuid or expected.bdf}, uses {report.uuid or report.bdf}" for report, expected in wrong],
    )


def planned_device(plan: Placement, rank: int, topologies: Mapping[str, HostTopology]) -> Device | None:
    node = plan.node_of(rank)
    host = topologies.get(node.host)
    index = plan.index_of(rank)
    return next((device for device in host.devices if device.index == index), None) if host and node.indexes else None


def differs(report: RankReport, expected: Device) -> bool:
    if report.uuid and expected.uuid:
        return report.uuid != expected.uuid
    return bool(report.bdf and expected.bdf and report.bdf.lower() != expected.bdf.lower())


def nic_far(plan: Placement, reports: Sequence[RankReport], topologies: Mapping[str, HostTopology]) -> Finding | None:
    """A NIC in use that is not among the nearest of the device that the rank really uses."""
    wrong = [(r, near) for r in reports if r.nic and (near := near_names(plan, r, topologies)) and r.nic not in near]
    if not wrong:
        return None
    first, near = wrong[0]
    return finding(
        plan,
        "mesh.nic_far",
        [report.rank for report, _ in wrong],
        f"{len(wrong)} ranks send through NICs far from their devices: rank {first.rank} uses {first.nic}, "
        f"near are {', '.join(near)}",
        "set NCCL_IB_HCA to the near NICs, or let NCCL choose by removing it",
        [f"uses {report.nic}, near are {', '.join(near)}" for report, near in wrong],
    )


def near_names(plan: Placement, report: RankReport, topologies: Mapping[str, HostTopology]) -> list[str]:
    host = topologies.get(report.host)
    if host is None:
        return []
    used = next((d for d in host.devices if report.uuid and d.uuid == report.uuid), None)
    device = used or planned_device(plan, report.rank, topologies)
    return [nic.label for nic in host.near_nics(device)] if device else []


def numa_binding(
    plan: Placement, reports: Sequence[RankReport], bindings: Mapping[tuple[str, int], Binding]
) -> Finding | None:
    """Ranks that may run on CPUs outside of those near their device."""
    wrong = [
        (report, binding)
        for report in reports
        if (binding := bindings.get((report.host, report.rank % plan.nproc_per_node)))
        and binding.cpus
        and report.cpus
        and not set(parse_cpus(report.cpus)) <= set(parse_cpus(binding.cpus))
    ]
    if not wrong:
        return None
    first, binding = wrong[0]
    return finding(
        plan,
        "mesh.numa_binding",
        [report.rank for report, _ in wrong],
        f"{len(wrong)} ranks may run on CPUs far from their devices: rank {first.rank} has CPUs {first.cpus}, near "
        f"{binding.device or 'its memory'} are {binding.cpus}",
        "bind each rank to its NUMA node (dlaunch does; torchrun --numa-binding node)",
        [f"has CPUs {report.cpus}, near are {binding.cpus}" for report, binding in wrong],
    )
