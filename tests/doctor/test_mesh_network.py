"""Axes in the network's tree, and devices and adapters as NCCL's logs show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.diagnose import diagnose
from doctor.discover import discover
from doctor.evidence import EvidenceSet
from doctor.evidence.switches import SwitchTree, sniff
from launcher.common.finding import Verdict
from tests.doctor.dumps import Op, Recorder
from tests.doctor.test_slow import job, judged

TREE = (
    "SwitchName=leaf1 Level=0 Nodes=n[0,2]\nSwitchName=leaf2 Level=0 Nodes=n[1,3]\nSwitchName=top Switches=leaf[1-2]\n"
)
INIT = "ncclCommInitRankConfig comm 0x5{rank} rank {rank} nranks 4 cudaDev {device} nvmlDev {device} busId {device}a000"


def tree(tmp_path: Path, text: str) -> SwitchTree:
    (tmp_path / "switches.txt").write_text(text)
    return discover([tmp_path]).of(SwitchTree)[0]


def logs(tmp_path: Path, lines: list[str]) -> Verdict:
    (tmp_path / "job.log").write_text("".join(f"{line}\n" for line in lines))
    return diagnose(discover([tmp_path]), "mesh")


def test_a_dense_axis_under_two_leaves_that_fits_one(tmp_path: Path) -> None:
    switches = tree(tmp_path, TREE)
    assert switches.paths["n0"][-1] == "leaf1"
    (finding,) = diagnose(EvidenceSet([job("dp_replicate=2,dp_shard=4", 2), switches]), "mesh").findings
    assert (finding.code, finding.detail["axis"]) == ("mesh.axis_crosses_switch", "dp_shard")
    assert finding.hosts == ("n0", "n1", "n2", "n3")


def test_an_axis_that_no_leaf_has_room_for_may_cross(tmp_path: Path) -> None:
    assert diagnose(EvidenceSet([job("dp_shard=8", 2), tree(tmp_path, TREE)]), "mesh").answer == "none"


def test_switches_are_known_by_their_form() -> None:
    assert sniff(TREE.encode(), "x") == 1.0
    assert sniff(b"- topology: default\n  tree:\n", "topology.yaml") == 1.0
    assert not sniff(b"epoch 1 loss 2.0\n", "x")


@pytest.mark.parametrize(
    ("order", "code", "ranks"), [((0, 1, 2, 3), "none", ()), ((0, 2, 1, 3), "mesh.device_order", (1, 2))]
)
def test_devices_in_another_order_than_their_ranks(
    tmp_path: Path, order: tuple[int, ...], code: str, ranks: tuple[int, ...]
) -> None:
    lines = [
        f"h1:{100 + rank}:2 [{device}] NCCL INFO {INIT.format(rank=rank, device=device)} commId 0x77 - Init COMPLETE"
        for rank, device in enumerate(order)
    ]
    verdict = logs(tmp_path, [*lines, "h1:100:2 [0] NCCL INFO Connected all rings"])
    found = [finding for finding in verdict.findings if finding.code == "mesh.device_order"]
    assert [finding.ranks for finding in found] == ([ranks] if ranks else [])
    assert code in (verdict.answer, "none")


def test_an_adapter_on_another_root(tmp_path: Path) -> None:
    verdict = logs(
        tmp_path, ["h1:1:2 [3] NCCL INFO NET/IB : GPU Direct RDMA Disabled for GPU 3 / HCA 1 (distance 8 > 5)"]
    )
    assert verdict.answer == "mesh.nic_far" and verdict.findings[0].hosts == ("h1",)


@pytest.mark.parametrize(("tp", "wrong"), [(((0, 1), (2, 3)), False), (((0, 2), (1, 3)), True)])
def test_a_mesh_that_the_script_lays_out_otherwise(tp: tuple[tuple[int, int], ...], wrong: bool) -> None:
    name = ("7", "mesh_tp")
    ranks = [Recorder(rank, {name: next(pair for pair in tp if rank in pair)}) for rank in range(4)]
    for one in ranks:
        one.run(Op(name))
    verdict = judged(ranks, "mesh", job("dp_replicate=2,tp=2", 4))
    assert verdict.answer == ("mesh.group_mismatch" if wrong else "none")


def test_the_groups_of_an_axis_that_is_a_second_view_of_the_mesh() -> None:
    """`dp_shard=4,ep=2`: experts are spread over parts of the data axis, so ranks have no coordinate of their own."""
    name = ("7", "mesh_ep")
    ranks = [Recorder(rank, {name: next(pair for pair in ((0, 1), (2, 3)) if rank in pair)}) for rank in range(4)]
    for one in ranks:
        one.run(Op(name))
    assert judged(ranks, "mesh", job("dp_shard=4,ep=2", 4)).answer == "none"
