"""Why a straggler is slow, where its host's evidence tells, and what slows a pipeline or splits replicas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from doctor.diagnose import diagnose
from doctor.discover import discover
from doctor.evidence import EvidenceSet
from doctor.evidence.kineto import times_of
from doctor.evidence.progress import ProgressSeries
from tests.doctor.dumps import Op, Recorder, recorders
from tests.doctor.test_slow import LATE_NS, first, job, judged, steps

CLOCKS = "index, clocks.current.sm [MHz], utilization.gpu [%]\n"
GDR = "NCCL INFO NET/IB : GPU Direct RDMA {} for HCA 0 'mlx5_0'\n"


def late_host(rank_late: Sequence[int]) -> list[Recorder]:
    ranks = recorders(4)
    for one in ranks:
        steps(one, 20, LATE_NS + one.rank * 1000 if one.rank in rank_late else 0)
    return ranks


@pytest.mark.parametrize(
    ("files", "code"),
    [
        (
            {"n1.csv": CLOCKS + "0, 1100 MHz, 99 %\n", "n0.csv": CLOCKS + "0, 1980 MHz, 99 %\n1, 1980 MHz, 99 %\n"},
            "clock",
        ),
        ({"n1.log": "n1:1:2 [0] NCCL WARN NET/IB : mlx5_1:1 Got async event : port error\n"}, "network"),
        ({"n1/counters.txt": "link mlx5_1/1 out_of_sequence 812345 local_ack_timeout_err 40123\n"}, "network"),
        ({"a.log": "n1:1:2 [0] " + GDR.format("Disabled"), "b.log": "n0:1:2 [0] " + GDR.format("Enabled")}, "gdr"),
        ({}, "node"),
    ],
)
def test_the_sign_of_its_host_names_the_cause(tmp_path: Path, files: dict[str, str], code: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    evidence = discover([tmp_path])
    records: list[object] = []
    for kind in evidence.kinds:
        records += evidence.of(kind)
    found = judged(late_host((2, 3)), "straggler", job("dp_replicate=4", 2), *records).findings
    assert [(one.ranks, one.hosts) for one in found if one.code == f"straggler.{code}" and one.ranks] == [
        ((2, 3), ("n1",))
    ]


def test_a_rank_that_comes_late_out_of_its_experts_is_overloaded() -> None:
    group = ("5", "mesh_ep")
    ranks = [Recorder(rank, {group: range(4)}) for rank in range(4)]
    for one in ranks:
        for _ in range(20):
            one.run(Op(group, "all_to_all_single"), Op(group, "all_to_all_single", late_ns=LATE_NS * (one.rank == 2)))
    verdict = judged(ranks, "straggler")
    assert (verdict.answer, first(verdict).ranks) == ("straggler.expert_imbalance", (2,))


def kernel(name: str, start: float, length: float, collective: str = "", group: str = "") -> dict[str, Any]:
    args = {"Collective name": collective, "Process Group Description": group}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": length, "args": args}


@pytest.mark.parametrize(
    ("collective", "group", "code"),
    [
        ("recv", "", "slow.bubble"),
        ("", "mesh_pp", "slow.bubble"),
        ("all_to_all", "mesh_ep", "slow.exposed_comm"),
    ],
)
def test_waiting_for_the_neighbours_of_a_pipeline_is_its_bubble(collective: str, group: str, code: str) -> None:
    events = [kernel("gemm", 0, 600), kernel("ncclDevKernel_SendRecv(x)", 600, 400, collective or "sendrecv", group)]
    assert diagnose(EvidenceSet([times_of(events, 0, "trace")]), "straggler").answer == code


def series(rank: int, norms: Sequence[float]) -> ProgressSeries:
    none = (float("nan"),) * len(norms)
    return ProgressSeries(rank, f"rank{rank}", tuple(range(len(norms))), none, none, none, none, tuple(norms))


def test_replicas_that_go_apart_are_named_with_the_step() -> None:
    usual = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5]
    apart = [*usual[:3], 0.72, 0.66, 0.58]
    verdict = diagnose(EvidenceSet([series(0, usual), series(1, apart), series(2, usual)]))
    assert (verdict.answer, first(verdict).ranks, first(verdict).detail["step"]) == (
        "numeric.replica_divergence", (1,), 3,
    )  # fmt: skip


def test_norms_that_were_never_equal_are_no_replicas() -> None:
    evidence = EvidenceSet([series(0, [1.0, 0.9, 0.8] * 3), series(1, [2.0, 1.9, 1.8] * 3)])
    assert not any(one.code == "numeric.replica_divergence" for one in diagnose(evidence).findings)
