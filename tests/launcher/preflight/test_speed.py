"""What is concluded from measurements: who is slow, wrong, or fails, and silence when all are alike."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from launcher.preflight.checks.speed import bandwidths, better_of, judge, judge_all
from launcher.preflight.pairs import rounds
from tests.launcher.preflight.hosts import NAMES, sound

FACTS = {name: sound(name) for name in NAMES}
BYTES = 2_000_000
Rate = Callable[[frozenset[str]], float | None]


def answers(rate: Rate, flops: Callable[[str], float] = lambda host: 1e12, right: bool = True) -> dict[str, Any]:
    """Answers of four hosts: `rate` is the bytes a second of a pair, None where it failed."""
    told: dict[str, Any] = {
        name: {
            "products": [
                {"device": f"cuda:{index}", "flops": flops(name), "right": right or name != "n2"} for index in range(4)
            ],
            "inside": {"seconds": 0.001},
            "phases": [],
        }
        for name in NAMES
    }  # fmt: skip
    for pairs in rounds(NAMES, 5):
        for pair in pairs:
            speed = rate(frozenset(pair))
            outcome = {"seconds": [BYTES / speed], "bytes": BYTES} if speed else {"error": "timed out"}
            for name in pair:
                told[name]["phases"].append({"group": list(pair), **outcome})
    return told


def found(told: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(finding.code, list(finding.hosts)) for finding in judge(told, FACTS)]


@pytest.mark.parametrize("seed", range(30))
def test_hosts_that_are_alike_within_noise_pass(seed: int) -> None:
    """A pair may be disturbed by half, a device by a tenth."""
    rng = random.Random(seed)
    assert found(answers(lambda pair: 1e9 * rng.uniform(0.5, 1.0), lambda host: 1e12 * rng.uniform(0.9, 1.0))) == []


def test_a_slow_host_is_told_from_a_slow_link() -> None:
    assert found(answers(lambda pair: 1e8 if "n3" in pair else 1e9)) == [("preflight.slow_link", ["n3"])]
    assert found(answers(lambda pair: 1e8 if pair == {"n1", "n4"} else 1e9)) == [("preflight.slow_link", ["n1", "n4"])]


def test_a_failing_host_is_told_from_a_failing_link() -> None:
    assert found(answers(lambda pair: None if "n3" in pair else 1e9)) == [("preflight.collective_failed", ["n3"])]
    (told,) = judge(answers(lambda pair: None if pair == {"n1", "n4"} else 1e9), FACTS)
    assert list(told.hosts) == ["n1", "n4"] and told.evidence[0].text == "timed out"


def test_a_slow_device_and_a_wrong_one_are_named() -> None:
    slow = found(answers(lambda pair: 1e9, lambda host: 4e11 if host == "n4" else 1e12))
    assert slow == [("preflight.slow_device", ["n4"])] * 4
    assert found(answers(lambda pair: 1e9, right=False)) == [("preflight.wrong_result", ["n2"])]


def test_a_collective_that_fails_inside_a_host_is_told() -> None:
    told = answers(lambda pair: 1e9)
    told["n1"]["inside"] = {"error": "unhandled system error"}
    assert found(told) == [("preflight.collective_failed", ["n1"])]


def test_a_pair_counts_only_where_both_have_finished() -> None:
    told = answers(lambda pair: 1e9)
    assert len(bandwidths(told)) == 6 and set(bandwidths(told).values()) == {1e9}
    for about in told["n1"]["phases"]:
        about.update(error="reset")
        del about["seconds"]
    assert {frozenset(pair) for pair in bandwidths(told)} == {
        frozenset(p) for p in (("n2", "n3"), ("n2", "n4"), ("n3", "n4"))
    }


def test_what_was_slow_once_and_not_again_was_disturbed() -> None:
    disturbed = answers(lambda pair: 1e8 if "n3" in pair else 1e9)
    again = answers(lambda pair: 9e8)
    assert found(better_of(disturbed, again)) == []
    assert found(better_of(disturbed, disturbed)) == [("preflight.slow_link", ["n3"])]
    assert found(better_of(disturbed, {})) == [("preflight.slow_link", ["n3"])]
    failing = answers(lambda pair: None if "n3" in pair else 1e9)
    assert found(better_of(failing, again)) == [("preflight.collective_failed", ["n3"])]


def test_the_whole_may_fail_where_every_pair_works() -> None:
    assert not list(judge_all({name: {"phases": [{"seconds": [0.1], "bytes": BYTES}]} for name in NAMES}))
    told = {
        name: {"phases": [{"error": "too many open files"} if name == "n2" else {"seconds": [0.1]}]} for name in NAMES
    }
    (finding,) = judge_all(told)
    assert (finding.code, list(finding.hosts)) == ("preflight.collective_failed", ["n2"])
