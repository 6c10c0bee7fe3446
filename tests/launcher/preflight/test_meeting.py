"""Hosts meet: the node side on real sockets, and who is blamed for what did not come through."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

import pytest

from launcher.agent.meet import meet
from launcher.preflight.checks.ports import interfaces, reachability, used_interface
from launcher.preflight.facts import Interface
from launcher.preflight.pairs import callees
from tests.launcher.preflight.hosts import sound

NAMES = [f"n{number}" for number in range(1, 9)]
CALLS = callees(NAMES)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def answers(closed: Iterable[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """What the hosts would say when the calls (from, to) in `closed` do not come through."""
    closed, ends = set(closed), {"address": "10.0.0.1", "local": "10.0.0.2"}
    return {
        host: {
            "reached": {peer: ends for peer in CALLS[host] if (host, peer) not in closed},
            "failed": {peer: "Connection refused" for peer in CALLS[host] if (host, peer) in closed},
        }
        for host in NAMES
    }  # fmt: skip


def judged(told: Mapping[str, Mapping[str, Any]]) -> list[tuple[list[str], str | None]]:
    findings = list(reachability(told, CALLS, 20100))
    assert all(finding.code == "bootstrap.unreachable" for finding in findings)
    return [(list(finding.hosts), finding.detail.get("direction")) for finding in findings]


def test_everybody_reaches_everybody() -> None:
    assert judged(answers([])) == []


def test_a_closed_port_is_told_from_a_closed_way_out() -> None:
    assert judged(answers((peer, "n3") for peer in NAMES)) == [(["n3"], "in")]
    assert judged(answers(("n3", peer) for peer in NAMES)) == [(["n3"], "out")]
    assert judged(answers([*(("n3", peer) for peer in NAMES), *((peer, "n3") for peer in NAMES)])) == [(["n3"], "both")]


@pytest.mark.parametrize("size", [3, 5, 13, 64])
@pytest.mark.parametrize("inward", [True, False])
def test_a_closed_host_is_named_whatever_the_size(size: int, inward: bool) -> None:
    """Among many hosts only a few call each."""
    names = [f"n{number}" for number in range(size)]
    calls = callees(names)
    told: dict[str, Any] = {host: {"reached": {}, "failed": {}} for host in names}
    for host, peers in calls.items():
        for peer in peers:
            closed = (peer if inward else host) == "n2"
            told[host]["failed" if closed else "reached"][peer] = "Connection refused"
    (finding,) = reachability(told, calls, 20100)
    assert (list(finding.hosts), finding.detail["direction"]) == (["n2"], "in" if inward else "out")


def test_two_closed_hosts_are_both_named() -> None:
    told = judged(answers((peer, host) for host in ("n3", "n5") for peer in NAMES))
    assert sorted(told) == [(["n3"], "in"), (["n5"], "in")]


def test_a_single_path_is_a_path_and_no_host() -> None:
    (finding,) = reachability(answers([("n2", "n7")]), CALLS, 20100)
    assert list(finding.hosts) == ["n2", "n7"]
    assert "n2 does not reach n7" in finding.cause
    assert finding.evidence[0].text == "Connection refused"


def test_a_host_that_took_no_part_is_nobodys_fault() -> None:
    told = answers((peer, "n3") for peer in NAMES)
    del told["n3"]
    assert judged(told) == []


def test_the_interface_is_that_of_our_end() -> None:
    facts = sound("n1", interfaces={"eth0": Interface(True, 1.0), "ib0": Interface(True, 200.0)},
                  addresses={"eth0": ["10.0.0.1"], "ib0": ["10.1.0.1"]})  # fmt: skip
    slow = {"reached": {"n2": {"address": "10.0.0.2", "local": "10.0.0.1"}}}
    assert used_interface(facts, slow) == "eth0"
    (finding,) = interfaces(facts, slow)
    assert (finding.code, finding.severity, finding.detail["faster"]) == ("bootstrap.wrong_interface", "info", ["ib0"])
    assert not list(interfaces(facts, {"reached": {"n2": {"address": "10.1.0.2", "local": "10.1.0.1"}}}))
    assert used_interface(facts, {"reached": {}}) is None


def test_a_host_meets_itself_on_a_real_port() -> None:
    answer = meet("word", "n1", free_port(), {"n1": ["127.0.0.1"]}, ["n1"], 20)
    assert answer["seen"] == ["n1"] and answer["reached"]["n1"]["local"] == "127.0.0.1" and not answer["failed"]


def test_a_peer_that_never_comes_is_told_when_time_is_up() -> None:
    answer = meet("word", "n1", free_port(), {"n2": []}, [], 0.3)
    assert answer == {"reached": {}, "failed": {"n2": "it has no address"}, "seen": []}


def test_a_port_that_another_program_holds_is_told() -> None:
    with socket.create_server(("", 0)) as held:
        assert "in use" in meet("word", "n1", held.getsockname()[1], {}, [], 5)["taken"]


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH\r\n", b""])
def test_another_program_that_answers_is_no_peer(said: bytes) -> None:
    with socket.create_server(("127.0.0.2", 0)) as stranger:
        port = stranger.getsockname()[1]

        def serve() -> None:
            while True:
                try:
                    connection, _ = stranger.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with socket.create_server(("127.0.0.1", 0)) as ours:
                free = ours.getsockname()[1]
            answer = _call_only(port, free)
        finally:
            stranger.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert "another program" in answer or "reset" in answer or "peer" in answer.lower()


def _call_only(port: int, free: int) -> str:
    """Why a call of 127.0.0.2:`port` failed."""
    from launcher.agent import meet as module

    meeting = module.Meeting("word", "n1", module.time.monotonic() + 0.5)
    module._call(meeting, "n2", ["127.0.0.2"], port)
    return meeting.failed["n2"]
