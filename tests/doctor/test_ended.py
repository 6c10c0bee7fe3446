"""Who ended first, what ranks read and draw, and sizes that gloo refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.diagnose import diagnose
from doctor.discover import discover
from doctor.evidence import EvidenceSet
from doctor.evidence.job import JobFacts
from doctor.evidence.log_lines import Origin
from doctor.evidence.logs import LogEvent
from doctor.evidence.nccl_log import NcclProcess
from doctor.evidence.processes import ProcessState
from doctor.evidence.progress import ProgressSeries
from doctor.rules.fleet import fleet_of
from launcher.common.finding import Finding, Verdict
from launcher.spec import MeshSpec

LOST = "RuntimeError: Connection closed by peer [127.0.0.1]:50922"


def job(mesh: str = "dp_replicate=4", state: str = "failed") -> JobFacts:
    spec = MeshSpec.parse(mesh)
    hosts = {rank: f"n{rank // 2}" for rank, _ in spec.ranks()}
    return JobFacts("j", "job.json", state, 0, spec.degrees, hosts, dict(spec.ranks()))


def end(rank: int, at: float, status: int | None, error: str = "") -> ProcessState:
    where = f"nodes/{rank}/agent.json"
    return ProcessState(rank, where, "gone", time=at, ended=at, exit_status=status, error=error, step=4)


def judged(*records: object) -> Verdict:
    return diagnose(EvidenceSet(records), "hang")


def first(verdict: Verdict) -> Finding:
    return verdict.findings[0]


def test_the_first_to_end_is_the_cause() -> None:
    finding = first(judged(job(), end(1, 10.0, None), end(0, 13.0, 1, LOST), end(2, 13.1, 1, LOST), end(3, 13.2, -15)))
    assert (finding.code, finding.ranks, finding.detail["sub_cause"]) == ("hang.absent_rank", (1,), "dead")
    assert finding.hosts == ("n0",)


def test_a_rank_of_which_logs_tell_is_placed_as_any_other() -> None:
    line = LogEvent("gpu_oom", "CUDA out of memory", Origin(rank=3), "r3.log:7")
    finding = first(judged(job(), line))
    assert (finding.code, finding.hosts, finding.coordinates) == ("gpu.oom", ("n1",), ("dp_replicate3",))


def test_nccls_log_tells_hosts_of_ranks_but_not_where_two_claim_one() -> None:
    speakers = [NcclProcess(host, 11, 0, f"{host}.log:1", rank) for host, rank in (("h0", 0), ("h1", 1), ("h2", 1))]
    assert EvidenceSet(speakers).once(fleet_of).hosts == {0: "h0"}


def test_an_exception_is_told_in_its_words() -> None:
    finding = first(judged(job(), end(2, 10.0, 1, "ValueError: bad shard"), end(0, 10.2, 1, LOST)))
    assert (finding.ranks, finding.detail["sub_cause"]) == ((2,), "exception")
    assert "bad shard" in finding.cause


def test_who_lost_no_peer_has_left() -> None:
    ends = [end(0, 10.0, 1, LOST), end(2, 10.1, 1, LOST), end(3, 10.2, 1, LOST), end(1, 10.3, -15)]
    finding = first(judged(job(), *ends))
    assert (finding.ranks, finding.detail["sub_cause"]) == ((1,), "uneven_data")


@pytest.mark.parametrize(("state", "answer"), [("succeeded", "none"), ("stopped", "unknown"), ("stopping", "unknown")])
def test_deliberate_ends_accuse_nobody(state: str, answer: str) -> None:
    ends = [end(rank, 10.0, 0 if state == "succeeded" else -15) for rank in range(4)]
    assert judged(job(state=state), *ends).answer == answer


def test_a_number_that_is_not_finite_is_the_cause_not_the_end() -> None:
    error = "FloatingPointError: step 5: loss nan, norm² nan"
    verdict = judged(job(), *(end(rank, 10.0, 1, error) for rank in range(4)))
    assert verdict.answer == "numeric.nonfinite"


def test_a_size_that_gloo_refuses(tmp_path: Path) -> None:
    folder = tmp_path / "ranks" / "0" / "attempt-0"
    folder.mkdir(parents=True)
    (folder / "stderr").write_text(
        "terminate called\n  what():  [enforce fail] op.preamble.length <= op.nbytes. 1000 vs 8. Received\n"
    )
    finding = first(diagnose(discover([tmp_path]), "hang"))
    assert (finding.code, finding.detail) == ("hang.shape_mismatch", {"received": 1000, "expected": 8})
    assert 0 in finding.ranks


def series(rank: int, samples: list[list[int]], seeds: tuple[int, ...] = ()) -> ProgressSeries:
    steps = len(samples) or len(seeds)
    known = (0.0,) * steps
    taken = tuple(map(tuple, samples))
    return ProgressSeries(
        rank, f"p{rank}", tuple(range(steps)), known, known, known, known, known, samples=taken, seeds=seeds
    )


def test_two_data_ranks_with_the_same_samples() -> None:
    own = {rank: [[10 * rank + step] for step in range(5)] for rank in range(4)}
    assert judged_all(job(), *(series(rank, samples) for rank, samples in own.items())) == []
    own[3] = own[1]
    found = judged_all(job(), *(series(rank, samples) for rank, samples in own.items()))
    assert [(one.code, one.ranks) for one in found] == [("data.duplicate_shards", (1, 3))]


def test_tensor_ranks_share_samples_and_must_share_seeds() -> None:
    shared = [[step] for step in range(5)]
    mesh = job("dp_replicate=1,tp=4")
    assert judged_all(mesh, *(series(rank, shared, (7, 7)) for rank in range(4))) == []
    odd = [series(rank, shared, (7, 8 if rank == 2 else 7)) for rank in range(4)]
    assert [(one.code, one.ranks) for one in judged_all(mesh, *odd)] == [("rng.group_mismatch", (2,))]


def test_an_order_that_never_changes() -> None:
    epoch = [[3], [1], [2]]
    assert [one.code for one in judged_all(series(0, epoch * 3))] == ["data.order_not_shuffled"]
    assert judged_all(series(0, [*epoch, [1], [3], [2]])) == []
    assert judged_all(series(0, epoch)) == []


@pytest.mark.parametrize(("shift", "codes"), [(0, ["data.order_not_shuffled"]), (3, [])])
def test_an_epoch_that_is_no_whole_number_of_steps(shift: int, codes: list[str]) -> None:
    """Two ranks take turns in an order of 7 samples, 2 a step each; `shift` is by how much each next epoch differs."""
    order = [(place * 3 + shift * (place // 7)) % 7 for place in range(48)]
    taken = [[order[4 * step + 2 * rank :][:2] for step in range(12)] for rank in (0, 1)]
    assert [one.code for one in judged_all(*(series(rank, one) for rank, one in enumerate(taken)))] == codes


def judged_all(*records: object) -> list[Finding]:
    """The findings on data and seeds alone."""
    found = diagnose(EvidenceSet(records)).findings
    return [one for one in found if one.code.startswith(("data.", "rng."))]


def test_torn_lines_of_progress_are_passed_over(tmp_path: Path) -> None:
    good = json.dumps({"step": 1, "step_s": 0.5, "loss": 2.0, "samples": [4, 5], "seed": 9})
    (tmp_path / "progress.jsonl").write_text(f'{good}\n{{"step": 2, "lo\n\x00\x00\n{good}\n')
    (read,) = discover([tmp_path]).of(ProgressSeries)
    assert (read.steps, read.samples, read.seeds) == ((1, 1), ((4, 5), (4, 5)), (9, 9))
