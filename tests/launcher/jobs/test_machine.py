"""The life of a job: what is seen goes in, what is to be done comes out."""

from __future__ import annotations

from dataclasses import replace

from launcher.common.agent_status import AgentStatus, RankStatus
from launcher.jobs.failure import NodeView
from launcher.jobs.machine import (
    SETTLE_S,
    Conclude,
    Life,
    StartAttempt,
    StopAttempt,
    bad_hosts,
    choose_hosts,
    observe,
    stopped,
)

STATUS = AgentStatus(node_rank=0, attempt=0, host="n1", state="running", pid=1, start_time=0.0)


def running(host: str = "n1") -> NodeView:
    return NodeView(host, replace(STATUS, host=host))


def ended(host: str = "n1", exit_status: int = 0, message: str = "") -> NodeView:
    ranks = (
        RankStatus(0, 0, pid=7, ended=5.0, exit_status=exit_status, error="ValueError: no" if exit_status else ""),
    )
    return NodeView(
        host, replace(STATUS, host=host, state="ended", exit_status=exit_status, ranks=ranks, message=message)
    )


def lost(host: str) -> NodeView:
    return NodeView(host, replace(STATUS, host=host), lost="lost: no route")


def test_a_job_runs_when_all_nodes_do() -> None:
    life, action = observe(Life(0), {0: running(), 1: NodeView("n2")}, 1.0, stop=False)
    assert (life.phase, action) == ("starting", None)
    life, action = observe(life, {0: running(), 1: running("n2")}, 2.0, stop=False)
    assert (life.phase, action) == ("running", None)


def test_all_nodes_at_status_0_are_success() -> None:
    life, action = observe(Life(0, "running"), {0: ended(), 1: ended("n2")}, 1.0, stop=False)
    assert life.phase == "ended"
    assert isinstance(action, Conclude) and action.state == "succeeded"


def test_one_node_that_is_done_is_not_the_end() -> None:
    life, action = observe(Life(0, "running"), {0: ended(), 1: running("n2")}, 1.0, stop=False)
    assert (life.phase, action) == ("running", None)


def test_after_a_failure_the_others_get_time_to_fail_in_their_own_words() -> None:
    views = {0: ended(exit_status=1), 1: running("n2")}
    life, action = observe(Life(0, "running"), views, 10.0, stop=False)
    assert (life.phase, action) == ("settling", None)
    _, action = observe(life, views, 10.0 + SETTLE_S / 2, stop=False)
    assert action is None
    life, action = observe(life, views, 10.0 + SETTLE_S, stop=False)
    assert life.phase == "stopping" and isinstance(action, StopAttempt) and action.at_once


def test_nothing_is_waited_for_when_all_are_over() -> None:
    views = {0: ended(exit_status=1), 1: lost("n2")}
    life, _ = observe(Life(0, "running"), views, 10.0, stop=False)
    _, action = observe(life, views, 10.1, stop=False)
    assert isinstance(action, StopAttempt)


def test_a_failure_without_restarts_left_ends_the_job_and_names_the_rank() -> None:
    _, action = stopped(Life(0, "stopping"), {0: ended(exit_status=1)}, 1.0, [])
    assert isinstance(action, Conclude)
    assert action.state == "failed" and action.failure is not None
    assert (action.failure.rank, action.failure.host, action.failure.error) == (0, "n1", "ValueError: no")


def test_survivors_are_told() -> None:
    _, action = stopped(Life(0, "stopping"), {0: ended(exit_status=1)}, 1.0, ["n1:77"])
    assert isinstance(action, Conclude) and "n1:77" in action.reason


def test_a_restart_is_a_new_attempt() -> None:
    life, action = stopped(Life(2, "stopping"), {0: ended(exit_status=1)}, 1.0, [])
    assert isinstance(action, StartAttempt) and action.attempt == 1
    assert (life.phase, life.restarts, dict(life.failures_by_host)) == ("starting", 1, {"n1": 1})


def test_restarts_are_used_up() -> None:
    _, action = stopped(Life(2, "stopping", attempt=2, restarts=2), {0: ended(exit_status=1)}, 1.0, [])
    assert isinstance(action, Conclude) and action.state == "failed"


def test_a_taken_port_costs_no_restart_but_not_for_ever() -> None:
    views = {0: ended(exit_status=1, message="RuntimeError: EADDRINUSE")}
    life, action = stopped(Life(0, "stopping"), views, 1.0, [])
    assert isinstance(action, StartAttempt) and life.restarts == 0
    _, action = stopped(replace(life, phase="stopping", port_retries=3), views, 1.0, [])
    assert isinstance(action, Conclude)


def test_stop_wins_over_everything() -> None:
    life, action = observe(Life(3, "settling"), {0: ended(exit_status=1)}, 1.0, stop=True)
    assert isinstance(action, StopAttempt) and not action.at_once
    _, action = stopped(life, {0: ended(exit_status=1)}, 2.0, [])
    assert isinstance(action, Conclude) and action.state == "stopped"


def test_a_lost_host_is_bad_at_once_a_failing_one_at_the_second_time() -> None:
    life, _ = stopped(Life(5, "stopping"), {0: ended(exit_status=1), 1: running("n2")}, 1.0, [])
    assert bad_hosts(life) == frozenset()
    life, _ = stopped(replace(life, phase="stopping"), {0: ended(exit_status=1), 1: lost("n2")}, 1.0, [])
    assert bad_hosts(replace(life, failures_by_host={"n1": 2})) == {"n1", "n2"}


def test_a_spare_takes_the_bad_hosts_place() -> None:
    assert choose_hosts(["a", "b", "c"], ["s"], frozenset("b"), 3, 3) == ["a", "s", "c"]


def test_without_a_spare_too_few_are_left() -> None:
    assert choose_hosts(["a", "b"], [], frozenset("b"), 2, 2) is None


def test_an_elastic_job_shrinks_and_grows() -> None:
    assert choose_hosts(["a", "b", "c"], [], frozenset("b"), 2, 3) == ["a", "c"]
    assert choose_hosts(["a", "c"], ["b", "d"], frozenset(), 2, 3) == ["a", "c", "b"]
