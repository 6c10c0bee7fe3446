"""A placement for people."""

from __future__ import annotations

from collections.abc import Iterable

from launcher.hosts.names import fold, fold_numbers
from launcher.placement.request import Answer
from launcher.placement.result import Placement, Report
from launcher.spec import format_coordinate

MOST_RANKS = 64  # above, nodes are listed and not ranks


def lines(answer: Answer) -> list[str]:
    """The rank table (for many ranks the nodes), costs, what limits them, notes and gaps."""
    placement = answer.placement
    table = rank_lines(answer) if placement.mesh.world_size <= MOST_RANKS else node_lines(placement)
    gaps = [f"not known of {fold(hosts)}: {gap}" for gap, hosts in answer.gaps.items()]
    hosts = f"{len(placement.nodes)} host{'s' * (len(placement.nodes) > 1)}"
    remarks = [*placement.report.notes, *filter(None, [answer.warning]), *gaps]
    return [f"mesh {placement.mesh} on {hosts}", *table, "", *cost_lines(placement.report), *remarks]


def rank_lines(answer: Answer) -> Iterable[str]:
    placement = answer.placement
    for rank, coordinate in placement.mesh.ranks():
        binding = answer.bindings[rank]
        where = [
            placement.node_of(rank).host,
            binding.device or f"local rank {binding.local_rank}",
            "" if binding.numa is None else f"NUMA {binding.numa}",
            f"CPUs {binding.cpus}" if binding.cpus else "",
            f"NIC {binding.nic}" if binding.nic else "",
        ]
        yield f"rank {rank:<3} {format_coordinate(coordinate):24} {', '.join(filter(None, where))}"


def node_lines(placement: Placement) -> Iterable[str]:
    per_node = placement.nproc_per_node
    for number, node in enumerate(placement.nodes):
        ranks = fold_numbers(range(number * per_node, (number + 1) * per_node))
        devices = " ".join(map(str, node.indexes)) or "-"
        yield f"node {number:<4} {node.host:16} ranks {ranks:12} devices {devices}"


def cost_lines(report: Report) -> Iterable[str]:
    """GB/s of each axis' slowest group: in index order, as placed, at best."""
    for axis in report.axes:
        yield (
            f"{axis.axis:13} {axis.index_order_gbps:7.1f} GB/s in index order, {axis.chosen_gbps:7.1f} as placed, "
            f"{axis.bound_gbps:7.1f} at best; limited by {axis.limit.link}"
        )
    if report.axis is None and report.axes:
        yield (
            f"a step communicates {report.index_order:.4g} s in index order, {report.chosen:.4g} s as placed, "
            f"{report.lower_bound:.4g} s at best, nothing hidden"
        )
    proven = "" if report.exact else " (a better order may exist: this one is packed, not proven)"
    yield report.verdict + proven
