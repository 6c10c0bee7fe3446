"""What becomes of a job, from what Slurm and the job's own files say."""

from __future__ import annotations

import pytest

from launcher.common.agent_status import AgentStatus
from launcher.slurm.bad_nodes import BadNode, still_bad
from launcher.slurm.lifecycle import ENDING, Warned, after_the_end, news, restart_reason
from launcher.slurm.states import job_state
from launcher.slurm.status import JobStatus
from launcher.slurm.values import ExitCode


def status(state: str, reason: str = "", **fields: object) -> JobStatus:
    return JobStatus("7", job_state(state), reason, **fields)  # type: ignore[arg-type]


def agent(node_rank: int, exit_status: int | None) -> AgentStatus:
    ended = exit_status is not None
    return AgentStatus(
        node_rank, 0, f"n{node_rank}", "ended" if ended else "running", 1, 1.0, exit_status=exit_status, time=50.0
    )


def test_a_waiting_job_says_why_and_until_when() -> None:
    latest = news(status("PENDING", "Priority", started=2e9), [], 2, False)
    assert latest.state == "pending" and "cannot start" not in latest.reason
    assert "higher priority" in latest.reason
    assert "expected start" in latest.reason


def test_a_wait_that_cannot_end_is_told() -> None:
    latest = news(status("PENDING", "PartitionNodeLimit"), [], 2, False)
    assert "cannot start like this" in latest.reason


def test_a_running_job_that_waits_again_was_requeued() -> None:
    latest = news(status("PENDING", "BeginTime"), [], 2, True)
    assert latest.reason.startswith("requeued: ")
    assert "two minutes" in latest.reason


@pytest.mark.parametrize(
    ("state", "outcome", "words"),
    [
        ("TIMEOUT", "failed", "time limit"),
        ("NODE_FAIL", "failed", "node failed"),
        ("OUT_OF_MEMORY", "failed", "--mem"),
        ("PREEMPTED", "failed", "preempted"),
        ("CANCELLED by 0", "stopped", "scancel"),
    ],
)
def test_ends_that_slurm_explains(state: str, outcome: str, words: str) -> None:
    latest = news(status(state, ended=9.0), [], 2, True)
    assert (latest.state, latest.ended) == (outcome, 9.0)
    assert words in latest.reason


def test_an_end_that_slurm_does_not_explain_is_read_from_the_agents_files() -> None:
    good, bad = [agent(0, 0), agent(1, 0)], [agent(0, 0), agent(1, 3)]
    assert news(status("COMPLETED"), good, 2, True).state == "succeeded"
    assert news(None, good, 2, True).state == "succeeded"
    assert "n1 ended with status 3" in news(None, bad, 2, True).reason
    assert news(None, [agent(0, 0)], 2, True).state == "failed"
    assert "does not know it" in news(None, [agent(0, None)], 2, True).reason


def test_a_batch_script_that_failed_before_any_rank_started() -> None:
    latest = news(status("FAILED", exit_code=ExitCode(2)), [], 2, False)
    assert (latest.state, "exit status 2" in latest.reason) == ("failed", True)


def test_ranks_that_ended_after_a_warning_are_started_again() -> None:
    assert after_the_end(True, True, "succeeded") == "requeue"
    assert after_the_end(True, True, "failed") == "requeue"
    assert after_the_end(True, True, "stopped") == "end"
    assert after_the_end(True, False, "failed") == "end"
    assert after_the_end(False, True, "failed") == "end"


def test_the_requeue_itself_needs_time() -> None:
    assert not Warned(0.0, 90.0).must_leave(79.0)
    assert Warned(0.0, 90.0).must_leave(81.0)
    assert Warned(0.0, 8.0).must_leave(6.5)


def test_why_slurm_started_a_job_again() -> None:
    ours = [
        {"event": "stopping", "reason": "n3: lost"},
        {"event": "stopping", "reason": ENDING},
        {"event": "pending", "reason": "requeued: waits", "by": "Slurm"},
    ]
    assert restart_reason([status("NODE_FAIL")], []) == "a node failed"
    assert restart_reason([status("NODE_FAIL")], ours) == "n3: lost"
    assert restart_reason([], [{"event": "running"}]) == "by Slurm"


def test_bad_nodes_are_left_out_until_their_time_is_over() -> None:
    nodes = {"n1": BadNode("failed job a", 100.0), "n2": BadNode("failed job b", 300.0)}
    assert list(still_bad(nodes, 200.0)) == ["n2"]
