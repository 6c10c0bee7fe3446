"""Prediction of c10d's order, bindings, and the plan against what ranks reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.placement import Placement, place
from launcher.placement.binding import bind, parse_cpus
from launcher.placement.rendezvous import c10d_order, order_warning
from launcher.placement.verify import RankReport, verify
from launcher.spec import MeshSpec
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
def plan() -> Placement:
    return place(MeshSpec({"dp_replicate": 2, "tp": 4}), list(HOSTS.values()), 4, False)


def right(plan: Placement) -> list[RankReport]:
    reports = []
    for rank in range(8):
        device = HOSTS[plan.node_of(rank).host].devices[plan.index_of(rank)]
        cpus = HOSTS["n1"].numa_cpus[device.numa or 0]
        reports.append(
            RankReport(rank, plan.node_of(rank).host, device.uuid, device.bdf, cpus, f"mlx5_{device.index // 2}")
        )
    return reports


def test_c10d_sorts_names_as_strings_and_the_warning_says_who_moves() -> None:
    hosts = ["n1", "n2", "n10"]
    assert c10d_order(hosts) == ["n1", "n10", "n2"]
    warning = order_warning(hosts)
    assert warning and "2 of 3 nodes" in warning and "n10 instead of n2 as node 1" in warning
    assert order_warning(["n1", "n2"]) is None


def test_a_job_as_planned_gives_no_finding(plan: Placement) -> None:
    assert verify(plan, right(plan), HOSTS) == []


def test_swapped_hosts(plan: Placement) -> None:
    reports = [replace(report, host={"n1": "n2", "n2": "n1"}[report.host]) for report in right(plan)]
    found = verify(plan, reports[:7], HOSTS)
    assert [finding.code for finding in found] == ["mesh.rank_map_differs"]
    assert list(found[0].ranks) == list(range(7)) and found[0].missing == ("rank 7 did not report",)
    assert found[0].coordinates[1] == "dp_replicate0/tp1"


def test_swapped_devices_by_uuid_and_by_address(plan: Placement) -> None:
    reports = right(plan)
    reports[0], reports[1] = replace(reports[1], rank=0), replace(reports[0], rank=1)
    assert [(f.code, tuple(f.ranks)) for f in verify(plan, reports, HOSTS)] == [("mesh.device_order", (0, 1))]
    by_address = [replace(report, uuid=None) for report in reports]
    assert verify(plan, by_address, HOSTS)[0].code == "mesh.device_order"


def test_a_far_nic(plan: Placement) -> None:
    reports = right(plan)
    reports[3] = replace(reports[3], nic="mlx5_0")
    found = verify(plan, reports, HOSTS)
    assert [(f.code, tuple(f.ranks)) for f in found] == [("mesh.nic_far", (3,))]
    assert "near are mlx5_1" in found[0].cause


def test_cpus_of_the_other_socket(plan: Placement) -> None:
    reports = right(plan)
    reports[4] = replace(reports[4], cpus="0-15")
    assert [(f.code, tuple(f.ranks)) for f in verify(plan, reports, HOSTS)] == [("mesh.numa_binding", (4,))]


def test_a_rank_that_tells_nothing_is_not_accused(plan: Placement) -> None:
    assert verify(plan, [RankReport(rank, plan.node_of(rank).host) for rank in range(8)], HOSTS) == []


def test_binding_follows_the_device() -> None:
    bindings = bind(HOSTS["n1"], [2, 0, 1, 3], 4)
    assert [b.numa for b in bindings] == [1, 0, 0, 1]
    assert bindings[0].cpus == "4-7,12-15" and bindings[0].nic == "mlx5_1"
    assert bindings[0].line() == "local rank 0: GPU2, NUMA 1, CPUs 4-7,12-15, NIC mlx5_1 (CPUs of NUMA 1)"


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
    assert parse_cpus("0-2,8") == [0, 1, 2, 8]
