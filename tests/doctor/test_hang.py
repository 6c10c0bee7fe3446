"""The culprit of a hang, from dumps: everything that torchfrtrace gets wrong must come out right here."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.diagnose import diagnose
from doctor.discover import discover
from doctor.evidence import EvidenceSet
from doctor.evidence.flight_recorder import normalised
from doctor.evidence.rank_table import Frame, RankTable
from doctor.evidence.stacks import Stack, Thread
from doctor.evidence.tabulate import tabulate
from launcher.common.finding import Finding, Verdict
from tests.doctor.dumps import WORLD, Op, Recorder, grid, group, recorders, write_all

STEP = (Op(), Op(name="all_gather_into_tensor", sizes=((4,),)), Op(sizes=((8, 2),)))


def judge(ranks: Sequence[Recorder], left_out: Sequence[int] = ()) -> Verdict:
    return diagnose(EvidenceSet(tables(ranks, left_out)), "hang")


def tables(ranks: Sequence[Recorder], left_out: Sequence[int] = ()) -> list[RankTable]:
    return [
        tabulate(normalised(one.dump()), one.rank, f"nccl_trace_rank_{one.rank}")
        for one in ranks
        if one.rank not in left_out
    ]


def first(verdict: Verdict) -> Finding:
    return verdict.findings[0]


def waiting_for(world: int, late: int, library: str = "nccl") -> list[Recorder]:
    ranks = recorders(world, library)
    for one in ranks:
        one.run(*STEP)
        if one.rank != late:
            one.wait(Op())
    return ranks


@pytest.mark.parametrize("library", ["nccl", "gloo", "hccl", "mccl"])
def test_the_rank_that_did_not_come_is_named(library: str) -> None:
    finding = first(judge(waiting_for(8, 5, library)))
    assert (finding.code, finding.ranks) == ("hang.absent_rank", (5,))
    assert finding.detail["seq"] == 4
    assert "rank 5" in finding.cause.lower()


def test_a_missing_dump_is_the_first_suspect() -> None:
    """torchfrtrace: AssertionError."""
    finding = first(judge(waiting_for(8, 5), left_out=[5]))
    assert (finding.code, finding.ranks) == ("hang.absent_rank", (5,))
    assert "no dump from rank 5" in finding.missing


def test_all_in_one_call_is_not_healthy() -> None:
    """torchfrtrace: says nothing, exit 0."""
    ranks = recorders(4)
    for one in ranks:
        one.run(*STEP).wait(Op())
    assert judge(ranks).answer == "hang.stalled_collective"


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0]])
def test_the_minority_is_the_culprit_in_any_order(order: list[int]) -> None:
    """torchfrtrace: its culprit depends on the order of files."""
    ranks = recorders(4)
    for one in ranks:
        one.run(*STEP).wait(Op(sizes=((7,),)) if one.rank == 0 else Op())
    finding = first(judge([ranks[rank] for rank in order]))
    assert (finding.code, finding.ranks) == ("hang.shape_mismatch", (0,))


def test_one_dump_of_many_blames_nobody() -> None:
    ranks = recorders(4)
    for one in ranks:
        one.run(Op()).wait(Op())
    assert judge(ranks[:1]).answer == "unknown"


def test_a_device_that_has_not_started_what_all_have_entered_is_named() -> None:
    ranks = recorders(4)
    for one in ranks:
        one.run(Op()).wait(Op(), state="scheduled" if one.rank == 3 else "started")
    verdict = judge(ranks)
    assert (verdict.answer, verdict.findings[0].ranks) == ("hang.stalled_collective", (3,))


def test_another_call_is_a_desync() -> None:
    ranks = recorders(4)
    for one in ranks:
        one.run(*STEP).wait(Op(name="broadcast") if one.rank == 2 else Op())
    finding = first(judge(ranks))
    assert (finding.code, finding.ranks) == ("hang.desync", (2,))
    assert "broadcast" in finding.cause


def test_an_extra_call_is_told() -> None:
    ranks = recorders(4)
    for one in ranks:
        if one.rank == 1:
            one.run(Op(name="barrier", sizes=()))
        one.run(*STEP).wait(Op(sizes=((5,),)))
    finding = first(judge(ranks))
    assert (finding.code, finding.ranks) == ("hang.desync", (1,))
    assert "too many" in finding.cause


def test_sizes_may_differ_in_all_to_all() -> None:
    ranks = recorders(4)
    for one in ranks:
        one.run(Op(name="all_to_all", sizes=((one.rank + 1, 8),)))
    assert judge(ranks).answer == "none"


def test_valid_send_and_recv_are_no_mismatch() -> None:
    """torchfrtrace: false MISMATCH."""
    ranks = recorders(2)
    for one in ranks:
        for _ in range(3):
            one.run(Op(name="send" if one.rank == 0 else "recv", peer=1 - one.rank), Op())
    assert judge(ranks).answer == "none"


def test_wrapped_buffers_are_aligned_by_sequence_number() -> None:
    """torchfrtrace: other record_id offsets make everything missing."""
    ranks = recorders(4, buffer=50)
    for one in ranks:
        if one.rank == 1:
            one.run(*[Op(name="send", peer=0)] * 7)
        for _ in range(100):
            one.run(*STEP)
        if one.rank != 3:
            one.wait(Op())
    finding = first(judge(ranks))
    assert (finding.code, finding.ranks) == ("hang.absent_rank", (3,))
    assert finding.detail["seq"] == 301


def test_mixed_versions_are_read_together() -> None:
    ranks = waiting_for(4, 2)
    for one, version in zip(ranks, ("2.0", "2.4", "2.7", "2.10"), strict=True):
        one.version = version
    old = ranks[0].dump()
    for entry in old["entries"]:
        for key in ("retired", "thread_id", "thread_name", "timeout_ms", "is_p2p"):
            del entry[key]
    del old["pg_config"], old["pg_status"]
    found = [tabulate(normalised(old), 0, "nccl_trace_rank_0"), *tables(ranks[1:])]
    finding = first(diagnose(EvidenceSet(found), "hang"))
    assert (finding.code, finding.ranks) == ("hang.absent_rank", (2,))


@pytest.mark.parametrize(("version", "severity"), [("2.23.4+cuda12.4", "error"), ("2.27.3", ""), ("", "warning")])
def test_a_known_bug_is_sure_where_the_dump_tells_the_version(version: str, severity: str) -> None:
    (table,) = tables([recorders(1)[0].run(*STEP)])
    stack = Stack(0, "gdb_0.txt", "gdb", (Thread("main", (Frame("ncclCommDestroy", "libnccl.so", 0),)),))
    verdict = diagnose(EvidenceSet([replace(table, library_version=version), stack]))
    assert [one.severity for one in verdict.findings if "2.23.4" in one.fix] == [severity] * bool(severity)


def test_an_unknown_operation_is_compared_like_any_other() -> None:
    ranks = recorders(3)
    for one in ranks:
        one.run(Op(name="brand_new_op"))
        if one.rank:
            one.wait(Op(name="brand_new_op"))
    assert first(judge(ranks)).ranks == (0,)


def test_one_name_with_other_members_is_two_groups() -> None:
    """torchfrtrace: mixes them."""
    members = [(0, 1), (0, 1), (2, 3), (2, 3)]
    ranks = [Recorder(rank, {WORLD: range(4), ("1", "tp"): members[rank]}) for rank in range(4)]
    for one in ranks:
        one.run(*[Op(("1", "tp"))] * (5 if one.rank < 2 else 9)).run(*STEP)
    assert judge(ranks).answer == "none"


def test_raw_gloo_dumps_that_are_retired_are_healthy() -> None:
    ranks = recorders(3, "gloo")
    for one in ranks:
        one.run(*STEP)
    assert judge(ranks).answer == "none"


def test_a_truncated_dump_still_tells(tmp_path: Path) -> None:
    """torchfrtrace: cannot read it."""
    for one in waiting_for(4, 3):
        path = one.write(tmp_path)
        if one.rank == 1:
            path.write_bytes(path.read_bytes()[:-200])
    verdict = diagnose(discover([tmp_path]), "hang")
    assert (first(verdict).code, first(verdict).ranks) == ("hang.absent_rank", (3,))


def test_dumps_as_json_and_under_any_name(tmp_path: Path) -> None:
    write_all(waiting_for(4, 1), tmp_path, name="host7-job12-{}.blob", as_json=True)
    finding = first(diagnose(discover([tmp_path]), "hang"))
    assert (finding.code, finding.ranks) == ("hang.absent_rank", (1,))


def test_the_root_is_named_not_its_victims_in_other_groups() -> None:
    """Rank 5 is absent in its tp group; its tp peers are then missed by everybody in the world group."""
    ranks = grid(16, 4)
    for one in ranks:
        one.run(Op(group(one, "tp")), Op(group(one, "dp")), Op())
        if one.rank // 4 != 1:
            one.run(Op(group(one, "tp"))).wait(Op(group(one, "dp")))
        elif one.rank != 5:
            one.wait(Op(group(one, "tp")))
    verdict = judge(ranks)
    assert first(verdict).ranks == (5,)
    assert all(finding.ranks == (5,) for finding in verdict.findings)


@pytest.mark.parametrize("library", ["nccl", "gloo"])
def test_a_cycle_over_groups_names_the_rank_that_left_a_call_out(library: str) -> None:
    ranks = grid(8, 2, library)
    for one in ranks:
        tp = group(one, "tp")
        one.run(*[Op(tp), Op()] * 5)
        if one.rank != 3:
            one.run(Op(tp)) if one.rank != 2 else one.wait(Op(tp))
        if one.rank != 2:
            one.wait(Op())
    finding = first(judge(ranks))
    assert (finding.code, finding.ranks) == ("hang.cross_group_cycle", (3,))
    assert "tp" in finding.cause


def test_two_threads_on_one_group_in_another_order() -> None:
    ranks = recorders(2)
    pair = [Op(thread="worker-a", sizes=((3,),)), Op(thread="worker-b", name="broadcast")]
    for one in ranks:
        one.run(*STEP, *[replace(op, name="all_reduce", sizes=((9,),)) for op in pair])
        one.wait(*(pair if one.rank else reversed(pair)))
    assert judge(ranks).answer == "hang.concurrent_threads"


def test_both_send_first() -> None:
    ranks = recorders(4)
    for one in ranks:
        one.run(*STEP)
        if one.rank < 2:
            one.wait(Op(name="send", peer=1 - one.rank))
    finding = first(judge(ranks))
    assert (finding.code, finding.ranks) == ("hang.p2p_unmatched", (0, 1))


def test_a_stage_that_never_sends_is_absent() -> None:
    ranks = recorders(3)
    for one in ranks:
        one.run(*STEP)
        if one.rank:
            one.wait(Op(name="recv", peer=one.rank - 1))
    finding = first(judge(ranks))
    assert (finding.code, finding.ranks) == ("hang.absent_rank", (0,))


def test_batched_calls_that_stay_scheduled_say_nothing() -> None:
    ranks = recorders(2)
    for one in ranks:
        one.run(*STEP).wait(Op(name="send", peer=1 - one.rank), state="scheduled")
    assert judge(ranks).answer == "none"


def test_two_samples_tell_slow_from_stuck() -> None:
    before, after = waiting_for(4, 2), waiting_for(4, 2)
    for one in after:
        one.entries[-1]["state"] = "completed"
        one.run(*STEP)
    verdict = diagnose(EvidenceSet([*tables(before), *tables(after)]), "hang")
    assert verdict.answer == "none"
    stuck = diagnose(EvidenceSet([*tables(before), *tables(before)]), "hang")
    assert first(stuck).ranks == (2,)


def test_nothing_pending_with_a_dump_missing_is_unknown() -> None:
    ranks = recorders(4)
    for one in ranks:
        one.run(*STEP)
    assert judge(ranks, left_out=[2]).answer == "unknown"


@settings(max_examples=25)
@given(st.integers(0, 7), st.randoms(use_true_random=False))
def test_the_answer_never_depends_on_the_order_of_files(late: int, shuffler: random.Random) -> None:
    found = tables(waiting_for(8, late))
    expected = diagnose(EvidenceSet(found), "hang").to_json()
    shuffler.shuffle(found)
    assert diagnose(EvidenceSet(found), "hang").to_json() == expected


def test_the_reduction_travels_without_loss() -> None:
    import json

    for table in tables(waiting_for(4, 1)):
        assert RankTable.from_json(json.loads(json.dumps(table.to_json()))) == table


def test_a_reduction_with_fields_of_another_version_is_read() -> None:
    """Not read: each bundle of before a field was dropped."""
    (table, *_) = tables(waiting_for(4, 1))
    document = table.to_json()
    assert document["newest"] and document["groups"]
    for one in (*document["newest"], *document["groups"]):
        one["of_another_version"] = 1
    assert RankTable.from_json(document) == table


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    """torchfrtrace: unpickles anything."""
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"pg_config": {}, "entries": [Runs(tmp_path / "ran")]}))
    found = discover([tmp_path])
    assert not (tmp_path / "ran").exists()
    assert any("refused" in gap.why for gap in found.gaps)
    assert diagnose(found).answer == "unknown"


class Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)
