"""Stragglers, slow jobs, and the mesh."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from doctor.diagnose import diagnose
from doctor.discover import discover
from doctor.evidence import EvidenceSet
from doctor.evidence.flight_recorder import ProcessView, normalised
from doctor.evidence.job import JobFacts
from doctor.evidence.kineto import overlap, times_of, union
from doctor.evidence.log_lines import Origin
from doctor.evidence.logs import LogEvent
from doctor.evidence.processes import ProcessState
from doctor.evidence.tabulate import tabulate
from doctor.rules.arrival import onset
from launcher.common.finding import Finding, Verdict
from launcher.spec import MeshSpec
from tests.doctor.dumps import Op, Recorder, recorders

LATE_NS = 4_000_000


def job(mesh: str, per_host: int) -> JobFacts:
    spec = MeshSpec.parse(mesh)
    hosts = {rank: f"n{rank // per_host}" for rank, _ in spec.ranks()}
    return JobFacts("j", "job.json", "running", 0, spec.degrees, hosts, dict(spec.ranks()))


def judged(ranks: list[Recorder], question: Any, *others: object) -> Verdict:
    tables = [tabulate(normalised(one.dump()), one.rank, f"fr_{one.rank}") for one in ranks]
    return diagnose(EvidenceSet([*tables, *others]), question)


def steps(one: Recorder, count: int, late_ns: int) -> None:
    """A step: a call after the computation, at which the slow rank is late, and one right after, at which none is."""
    for _ in range(count):
        one.run(Op(late_ns=late_ns), Op(name="broadcast"))


def first(verdict: Verdict) -> Finding:
    return verdict.findings[0]


def test_the_rank_that_comes_last_is_named() -> None:
    ranks = recorders(4)
    for one in ranks:
        steps(one, 20, LATE_NS if one.rank == 2 else one.rank * 1000)
    verdict = judged(ranks, "straggler")
    assert (verdict.answer, first(verdict).ranks) == ("straggler.rank", (2,))


def test_the_onset_is_told() -> None:
    ranks = recorders(4, "gloo")
    for one in ranks:
        steps(one, 20, 0)
        steps(one, 20, 2 * LATE_NS if one.rank == 1 else 0)
    finding = first(judged(ranks, "straggler"))
    assert finding.ranks == (1,)
    assert finding.detail["since_seq"] in (40, 41, 42)


def test_a_slow_host_is_one_finding_with_its_ranks() -> None:
    ranks = recorders(8)
    for one in ranks:
        steps(one, 20, LATE_NS + one.rank * 1000 if one.rank in (4, 5) else 0)
    verdict = judged(ranks, "straggler", job("dp_replicate=8", 2))
    assert (verdict.answer, first(verdict).ranks, first(verdict).hosts) == ("straggler.node", (4, 5), ("n2",))


@pytest.mark.parametrize(
    ("slow", "answer", "named"), [((2, 3), "straggler.node", (2, 3)), ((3,), "straggler.rank", (3,))]
)
def test_a_slow_host_whose_ranks_are_in_groups_of_their_own(
    slow: tuple[int, ...], answer: str, named: tuple[int, ...]
) -> None:
    """Two hosts of two ranks, groups across hosts and within them, as of a mesh."""
    groups = {
        rank: {
            ("1", f"dp{rank % 2}"): (rank % 2, rank % 2 + 2),
            ("2", f"tp{rank // 2}"): (rank // 2 * 2, rank // 2 * 2 + 1),
        }
        for rank in range(4)
    }
    ranks = [Recorder(rank, groups[rank], "nccl") for rank in range(4)]
    for one in ranks:
        for _ in range(20):
            across, within = groups[one.rank]
            waited = LATE_NS if one.rank // 2 == slow[0] // 2 else 0
            one.run(Op(group=within, late_ns=LATE_NS if one.rank in slow else 0), Op(group=across, late_ns=waited))
    verdict = judged(ranks, "straggler", job("dp_replicate=2,tp=2", 2))
    assert (verdict.answer, first(verdict).ranks) == (answer, named)


@pytest.mark.parametrize(
    ("cores", "steps_made", "answer", "named"),
    [
        ((0.3, 0.9, 0.3, 0.25), 3, "straggler.rank", (1,)),
        ((0.3, 0.3, 0.9, 0.8), 3, "straggler.node", (2, 3)),
        ((0.3, 0.9, 0.8, 0.3), 3, "unknown", ()),  # no host, and no rank alone
        ((0.5, 0.7, 0.6, 0.45), 3, "unknown", ()),  # stages of a pipeline are not equally long
        ((0.99, 1.0, 1.0, 0.98), 3, "unknown", ()),  # waiting on a device spins
        ((0.3, 0.9, 0.3, 0.25), 0, "unknown", ()),  # nobody makes steps: that is a hang
    ],
)
def test_who_computes_while_the_others_sleep(
    cores: tuple[float, ...], steps_made: int, answer: str, named: tuple[int, ...]
) -> None:
    looks = [
        ProcessState(rank, f"nodes/{rank // 2}/sample-{look}", "running", time=look, cpu=cpu, step=look * steps_made)
        for look in (0, 1)
        for rank, cpu in enumerate(cores)
    ]
    verdict = judged([], "straggler", job("pp=4", 2), *looks)
    assert (verdict.answer, first(verdict).ranks) == (answer, named)


@pytest.mark.parametrize(("seconds", "answer"), [(6, "none"), (120, "straggler.rank")])
def test_a_tenth_of_a_short_time_is_chance(seconds: int, answer: str) -> None:
    """Steps of a tenth of a second, of which a rank is late by a hundredth."""
    ranks = recorders(4)
    for one in ranks:
        for _ in range(10 * seconds):
            one.made += 9  # a step is as long as ten calls
            one.run(Op(late_ns=10_000_000 if one.rank == 2 else 0))
    assert judged(ranks, "straggler").answer == answer


def test_a_clock_that_is_off_is_no_straggler() -> None:
    ranks = recorders(4)
    for one in ranks:
        for _ in range(20):
            skew = 3_000_000_000 if one.rank == 3 else 0
            one.run(Op(late_ns=skew), Op(name="broadcast", late_ns=skew))
    assert judged(ranks, "straggler", job("dp_replicate=4", 1)).answer == "none"


def test_a_hiccup_of_one_rank_is_no_straggler() -> None:
    ranks = recorders(4)
    for one in ranks:
        steps(one, 20, 0)
        steps(one, 4, 20 * LATE_NS if one.rank == 2 else 0)
        steps(one, 20, 0)
    assert judged(ranks, "straggler").answer == "none"


def test_stages_of_a_pipeline_end_one_after_the_other() -> None:
    ranks = recorders(4)
    for one in ranks:
        steps(one, 20, LATE_NS if one.rank == 0 else 0)
    assert judged(ranks, "straggler", job("pp=4", 2)).answer == "unknown"


def test_even_ranks_are_healthy() -> None:
    ranks = recorders(4)
    for one in ranks:
        steps(one, 20, (one.rank * 7919) % 5000)
    assert judged(ranks, "straggler").answer == "none"


def write_progress(folder: Path, rank: int, data_s: float, **values: Any) -> None:
    target = folder / "ranks" / str(rank) / "attempt-0"
    target.mkdir(parents=True)
    lines = [
        {"time": 1000.0 + step, "step": step + 1, "step_s": 1.0, "data_s": data_s, "loss": 5.0, **values}
        for step in range(12)
    ]
    (target / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_slow_loader_shows_in_the_ranks_own_time(tmp_path: Path) -> None:
    for rank in range(4):
        write_progress(tmp_path, rank, 0.5 if rank == 3 else 0.01)
    verdict = diagnose(discover([tmp_path]), "straggler")
    assert (verdict.answer, first(verdict).ranks) == ("straggler.dataloader", (3,))


def test_all_waiting_for_data_is_input_bound(tmp_path: Path) -> None:
    for rank in range(4):
        write_progress(tmp_path, rank, 0.6)
    assert diagnose(discover([tmp_path]), "straggler").answer == "slow.input_bound"


def test_a_loss_that_is_not_finite_names_rank_and_step(tmp_path: Path) -> None:
    write_progress(tmp_path, 0, 0.01)
    write_progress(tmp_path, 1, 0.01, loss="nan")
    finding = first(diagnose(discover([tmp_path])))
    assert (finding.code, finding.ranks, finding.detail["step"]) == ("numeric.nonfinite", (1,), 1)


@pytest.mark.parametrize(("tellers", "named"), [((0, 1), (0,)), ((0,), ()), ((), ())])
def test_who_alone_prints_the_loss_need_not_have_spoilt_it(tellers: tuple[int, ...], named: tuple[int, ...]) -> None:
    line = LogEvent("nonfinite", "step 50 loss nan", Origin(rank=0), "stdout:6", {"what": "loss nan"})
    states = [ProcessState(rank, "agent.json", "running", step=60 if rank in tellers else None) for rank in range(3)]
    finding = first(diagnose(EvidenceSet([line, *states])))
    assert (finding.code, finding.ranks, finding.detail["step"]) == ("numeric.nonfinite", named, 50)


def kernel(name: str, start: float, length: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": length, "args": args}


@pytest.mark.parametrize("name", ["ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclKernel_AllReduce_RING_LL_Sum_float"])
def test_overlap_of_communication_and_computation(name: str) -> None:
    times = times_of([kernel("gemm", 0, 100), kernel(name, 50, 100)], 0, "trace")
    assert (times.communication_s, times.overlap_s, times.exposed_s) == pytest.approx((100e-6, 50e-6, 50e-6))
    assert times.by_group == {"AllReduce": pytest.approx((100e-6, 50e-6))}


def test_an_exposed_collective_is_found_in_a_gzipped_trace(tmp_path: Path) -> None:
    events = [kernel("gemm", at, 60) for at in range(0, 1000, 100)]
    events += [kernel("ncclDevKernel_AllGather_RING_LL", at + 60, 40) for at in range(0, 1000, 100)]
    (tmp_path / "rank0.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    assert diagnose(discover([tmp_path]), "straggler").answer == "slow.exposed_comm"


def test_small_kernels_with_gaps_are_launch_bound() -> None:
    times = times_of([kernel("add", at, 5) for at in range(0, 1000, 20)], 0, "trace")
    assert diagnose(EvidenceSet([times]), "straggler").answer == "slow.launch_bound"


def test_unions_and_overlaps() -> None:
    assert union([(5, 6), (0, 2), (1, 3)]) == [(0, 3), (5, 6)]
    assert overlap([(0, 10)], [(1, 2), (5, 20)]) == 6
    assert overlap([(0, 1), (2, 3)], [(0.5, 2.5)]) == 1


def test_onset_of_a_step() -> None:
    assert onset([0.0] * 10 + [1.0] * 10) == 10
    assert onset([1.0] * 20) is None


@pytest.mark.parametrize(("mesh", "per_host", "answer"), [("tp=2,dp_replicate=4", 4, "mesh.axis_crosses_node"),
                                                          ("dp_replicate=4,tp=2", 4, "none"),
                                                          ("dp_replicate=2,tp=4", 2, "none")])  # fmt: skip
def test_an_inner_axis_that_leaves_its_host(mesh: str, per_host: int, answer: str) -> None:
    assert diagnose(EvidenceSet([job(mesh, per_host)]), "mesh").answer == answer


def test_ranks_on_other_hosts_than_planned() -> None:
    views = [ProcessView(rank, "view", f"n{rank}", 0.0, {}) for rank in (1, 0)]
    swapped = [replace(view, host=f"n{1 - view.rank}") for view in views]
    assert diagnose(EvidenceSet([job("dp_replicate=2", 1), *views]), "mesh").answer == "none"
    verdict = diagnose(EvidenceSet([job("dp_replicate=2", 1), *swapped]), "mesh")
    assert (verdict.answer, first(verdict).ranks) == ("mesh.rank_map_differs", (0, 1))


def test_a_group_on_whose_members_ranks_disagree() -> None:
    members = {0: (0, 1), 1: (0, 1, 2), 2: (0, 1, 2), 3: (3,)}
    ranks = [Recorder(rank, {("5", "dp"): members[rank]}).run(Op(("5", "dp"))) for rank in range(4)]
    assert judged(ranks, "mesh").answer == "mesh.group_mismatch"


def test_a_product_that_is_not_the_world_size() -> None:
    assert diagnose(EvidenceSet([replace(job("dp_replicate=4", 2), mesh={"dp_replicate": 8})]), "mesh").answer == (
        "mesh.degree_mismatch"
    )


def test_the_mesh_without_evidence_is_unknown() -> None:
    assert diagnose(EvidenceSet(), "mesh").answer == "unknown"
