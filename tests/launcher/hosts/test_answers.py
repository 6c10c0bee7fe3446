"""Many hosts asked at once: what they gave, and why the others gave nothing."""

from __future__ import annotations

import pytest

from launcher.errors import CannotActError
from launcher.hosts.local import LocalHost
from launcher.hosts.protocol import Answers, HostError, on_all

HOSTS = [LocalHost(name) for name in ("n1", "n2", "n3")]


def ask(host: LocalHost) -> str:
    if host.name == "n1":
        raise HostError("n1", "lost", help="ping n1")
    if host.name == "n3":
        raise CannotActError("n3: no psutil", help="pip install psutil")
    return "here"


def test_hosts_that_fail_hide_no_other() -> None:
    answers = on_all(HOSTS, ask)
    assert answers.good == {"n2": "here"}
    assert answers.reasons == {"n1": "n1: lost", "n3": "n3: no psutil"}


def test_where_all_are_needed_every_host_that_failed_is_named() -> None:
    with pytest.raises(CannotActError) as raised:
        on_all(HOSTS, ask).whole()
    assert (raised.value.message, raised.value.help) == ("n1: lost; n3: no psutil", "ping n1")
    assert on_all(HOSTS[1:2], ask).whole() == {"n2": "here"}


def test_nobody_was_asked() -> None:
    assert on_all([], ask) == Answers({}, {})


def test_a_mistake_of_ours_is_no_answer() -> None:
    with pytest.raises(ZeroDivisionError):
        on_all(HOSTS, lambda host: 1 // 0)
