"""The first failure is the cause, its echoes are victims."""

from __future__ import annotations

from launcher.common.agent_status import AgentStatus, RankStatus
from launcher.jobs.failure import NodeView, describe_exit, first_failure, port_was_taken

ECHO = "RuntimeError: [../gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.1]:4242"


def view(
    host: str, *ranks: RankStatus, offset: float = 0.0, lost: str = "", message: str = "", time: float = 50.0
) -> NodeView:
    status = AgentStatus(
        node_rank=0, attempt=0, host=host, state="ended", pid=1, start_time=0.0, exit_status=1, ranks=ranks,
        message=message, time=time,
    )  # fmt: skip
    return NodeView(host, status, lost=lost, clock_offset=offset)


def rank(number: int, ended: float, error: str = "", status: int | None = 1, step: int | None = None) -> RankStatus:
    return RankStatus(number, 0, pid=1, ended=ended, exit_status=status, error=error, step=step)


def test_nothing_failed() -> None:
    status = AgentStatus(node_rank=0, attempt=0, host="a", state="ended", pid=1, start_time=0.0, exit_status=0)
    assert first_failure({0: NodeView("a", status)}) is None


def test_an_echo_that_came_earlier_by_the_clock_is_still_an_echo() -> None:
    failure = first_failure({0: view("a", rank(0, 10.0, ECHO)), 1: view("b", rank(1, 10.2, "ValueError: no"))})
    assert failure is not None
    assert (failure.rank, failure.host, failure.error, failure.victims) == (1, "b", "ValueError: no", (0,))
    assert failure.exit_status == 1


def test_a_killed_rank_is_named_with_its_signal() -> None:
    failure = first_failure({0: view("a", rank(0, 11.0, ECHO)), 1: view("b", rank(1, 10.0, status=-9))})
    assert failure is not None
    assert (failure.rank, failure.error, failure.exit_status) == (1, "killed by SIGKILL", 137)


def test_a_peers_abort_is_an_echo() -> None:
    failure = first_failure({0: view("a", rank(0, 9.0, status=-6)), 1: view("b", rank(1, 10.0, "KeyError: 'x'"))})
    assert failure is not None and failure.rank == 1


def test_clocks_are_compared_after_their_offset() -> None:
    views = {
        0: view("a", rank(0, 3610.0, "ValueError: first"), offset=3600.0),
        1: view("b", rank(1, 12.0, "ValueError: second")),
    }
    failure = first_failure(views)
    assert failure is not None and failure.rank == 0


def test_a_rank_that_left_early_is_the_cause_of_its_peers_errors() -> None:
    views = {0: view("a", rank(0, 20.0, ECHO)), 1: view("b", rank(1, 10.0, status=None, step=4))}
    failure = first_failure(views)
    assert failure is not None and failure.rank == 1
    assert "status 0 after step 4" in failure.error


def test_a_rank_that_torchrun_ended_after_its_sibling_failed_is_no_cause() -> None:
    views = {
        0: view("a", rank(0, 20.0, ECHO), rank(1, 20.5, status=None)),
        1: view("b", rank(2, 19.9, "OSError: disk")),
    }
    failure = first_failure(views)
    assert failure is not None and failure.rank == 2


def test_a_lost_host_comes_before_the_echoes_of_its_loss() -> None:
    failure = first_failure({0: view("a", rank(0, 51.0, ECHO)), 1: view("b", lost="lost: no answer", time=50.0)})
    assert failure is not None and (failure.rank, failure.host) == (None, "b")


def test_torchrun_itself_may_fail() -> None:
    failure = first_failure({0: view("a", message="…\nModuleNotFoundError: No module named 'torch'\n")})
    assert failure is not None and failure.error == "ModuleNotFoundError: No module named 'torch'"


def test_a_taken_port_is_recognised() -> None:
    assert port_was_taken({0: view("a", message="The server socket has failed to listen. EADDRINUSE")})
    assert not port_was_taken({0: view("a", message="ValueError")})


def test_exits_in_words() -> None:
    assert [describe_exit(s) for s in (3, -11, -250)] == [
        "ended with status 3",
        "killed by SIGSEGV",
        "killed by signal 250",
    ]
