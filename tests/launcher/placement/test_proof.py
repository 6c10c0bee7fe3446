"""Prediction of c10d's order, bindings, and the plan against what ranks reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.common.binding import PlannedRank, RankReport, index_list
from launcher.common.verify import hca_allows, verify
from launcher.placement import place
from launcher.placement.binding import bind
from launcher.placement.rendezvous import c10d_order, order_warning
from launcher.spec import MeshSpec, format_coordinate
from launcher.topology import HostTopology, Link
from tests.launcher.placement.hosts import uniform_host


def numa_host(name: str) -> HostTopology:
    """Four devices on two NUMA nodes, each pair next to a NIC of its own."""
    plain = uniform_host(name, 4, nics=2)
    near = tuple(Link(f"GPU{d}", f"mlx5_{n}", "PIX" if d // 2 == n else "SYS") for d in range(4) for n in range(2))
    return replace(
        plain,
        devices=tuple(replace(d, numa=d.index // 2, bdf=f"0000:0{d.index}:00.0") for d in plain.devices),
        links=(*plain.links, *near),
        numa_cpus={0: "0-3,8-11", 1: "4-7,12-15"},
    )


HOSTS = {name: numa_host(name) for name in ("n1", "n2")}


@pytest.fixture
def plan() -> list[PlannedRank]:
    placed = place(MeshSpec({"dp_replicate": 2, "tp": 4}), list(HOSTS.values()), 4, False)
    bindings = [binding for node in placed.nodes for binding in bind(HOSTS[node.host], node.indexes, 4)]
    return [
        PlannedRank(rank, placed.node_of(rank).host, format_coordinate(coordinate), bindings[rank])
        for rank, coordinate in placed.mesh.ranks()
    ]


def right(plan: list[PlannedRank]) -> list[RankReport]:
    return [RankReport(p.rank, p.host, p.binding.handle, p.binding.cpus, "mlx5") for p in plan if p.binding]


def test_c10d_sorts_names_as_strings_and_the_warning_says_who_moves() -> None:
    hosts = ["n1", "n2", "n10"]
    assert c10d_order(hosts) == ["n1", "n10", "n2"]
    warning = order_warning(hosts)
    assert warning and "2 of 3 nodes" in warning and "n10 instead of n2 as node 1" in warning
    assert order_warning(["n1", "n2"]) is None


def test_a_job_as_planned_gives_no_finding(plan: list[PlannedRank]) -> None:
    assert verify(plan, right(plan)) == []


def test_swapped_hosts(plan: list[PlannedRank]) -> None:
    reports = [replace(report, host={"n1": "n2", "n2": "n1"}[report.host]) for report in right(plan)]
    found = verify(plan, reports[:7])
    assert [finding.code for finding in found] == ["mesh.rank_map_differs"]
    assert list(found[0].ranks) == list(range(7)) and found[0].missing == ("rank 7 did not report",)
    assert found[0].coordinates[1] == "dp_replicate0/tp1"


def test_swapped_devices_by_uuid_and_by_index(plan: list[PlannedRank]) -> None:
    reports = right(plan)
    reports[0], reports[1] = replace(reports[0], device=reports[1].device), replace(reports[1], device="0")
    (found,) = verify(plan, reports)
    assert (found.code, tuple(found.ranks)) == ("mesh.device_order", (0, 1))
    assert "rank 0 on n1 uses GPU-n1-1 (GPU1) instead of GPU-n1-0 (GPU0)" in found.cause
    assert verify(plan, [replace(reports[1], device="1")]) == []


def test_nics_that_are_left_out(plan: list[PlannedRank]) -> None:
    reports = [replace(report, hca="=mlx5_0:1") for report in right(plan)]
    (found,) = verify(plan, reports)
    assert (found.code, tuple(found.ranks)) == ("mesh.nic_far", (2, 3, 6, 7))
    assert "near rank 2 on n1 are mlx5_1" in found.cause


@pytest.mark.parametrize(
    ("selection", "allowed"),
    [("mlx5", True), ("mlx5_1", True), ("=mlx5_1", False), ("=mlx5_10", True), ("^mlx5_1", False), ("^=mlx5_1", True)],
)
def test_the_selection_of_nics_as_nccl_reads_it(selection: str, allowed: bool) -> None:
    assert hca_allows(selection, "mlx5_10") == allowed


def test_cpus_of_the_other_socket(plan: list[PlannedRank]) -> None:
    reports = right(plan)
    reports[4] = replace(reports[4], cpus="0-15")
    assert [(f.code, tuple(f.ranks)) for f in verify(plan, reports)] == [("mesh.numa_binding", (4,))]


def test_a_rank_that_tells_nothing_is_not_accused(plan: list[PlannedRank]) -> None:
    assert verify(plan, [RankReport(planned.rank, planned.host) for planned in plan]) == []


def test_binding_follows_the_device() -> None:
    bindings = bind(HOSTS["n1"], [2, 0, 1, 3], 4)
    assert [b.numa for b in bindings] == [1, 0, 0, 1]
    assert bindings[0].cpus == "4-7,12-15" and bindings[0].nic == "mlx5_1"
    assert bindings[0].line() == "GPU2, 0000:02:00.0, NUMA 1, CPUs 4-7,12-15, NIC mlx5_1 (CPUs of NUMA 1)"


def test_binding_stays_in_the_cpuset() -> None:
    inside = replace(HOSTS["n1"], allowed_cpus="2-5")
    assert [b.cpus for b in bind(inside, [0, 2], 2)] == ["2-3", "4-5"]
    outside = bind(replace(inside, allowed_cpus="2"), [2], 1)[0]
    assert outside.cpus is None and "cpuset" in outside.why


def test_without_accelerators_ranks_spread_over_numa_nodes() -> None:
    bare = HostTopology("n1", numa_cpus={0: "0-3", 1: "4-7"})
    assert [b.numa for b in bind(bare, [], 4)] == [0, 0, 1, 1]
    assert bind(HostTopology("n1", numa_cpus={0: "0-3"}), [], 2)[0].cpus is None


def test_cpu_lists() -> None:
    assert index_list("0-2,8") == [0, 1, 2, 8]
    assert index_list("N/A,3-x,GPU-4,5") == [5]
