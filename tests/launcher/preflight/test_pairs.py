"""Tournaments pair everybody fairly, and elimination names hosts and links exactly."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import pytest

from launcher.preflight.pairs import Blame, blame, callees, rounds


@pytest.mark.parametrize("size", [*range(2, 14), 64, 101])
def test_a_whole_tournament_meets_every_pair_once(size: int) -> None:
    names = [f"n{number}" for number in range(size)]
    played = rounds(names, most=10**6)
    met = Counter(frozenset(pair) for pairs in played for pair in pairs)
    assert met == Counter(frozenset(pair) for pair in combinations(names, 2))
    for pairs in played:
        busy = [name for pair in pairs for name in pair]
        assert len(busy) == len(set(busy)) >= size - 1


@pytest.mark.parametrize("size", [3, 12, 13, 64, 1000])
def test_everybody_is_called_by_as_many_as_he_calls(size: int) -> None:
    names = [f"n{number}" for number in range(size)]
    calls = callees(names)
    incoming = Counter(peer for peers in calls.values() for peer in peers)
    assert all(name not in calls[name] and len(set(calls[name])) == len(calls[name]) for name in names)
    assert set(incoming.values()) == {len(calls[names[0]])}
    assert len(calls[names[0]]) <= max(11, size.bit_length())


@pytest.mark.parametrize("seed", range(60))
def test_bad_hosts_and_bad_links_are_told_apart(seed: int) -> None:
    """Up to a sixth of the hosts are bad, and one link between two good ones, in the five rounds that we play."""
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(rng.choice((6, 8, 16, 32)))]
    measured = [frozenset(pair) for pairs in rounds(names, 5) for pair in pairs]
    hosts = set(rng.sample(names, rng.randint(0, len(names) // 6)))
    link = rng.choice([pair for pair in measured if not pair & hosts])
    failed = [pair for pair in measured if pair & hosts or pair == link]
    told = blame(measured, failed)
    assert (set(told.hosts), set(told.links)) == (hosts, {link})


def test_one_pair_cannot_tell_who_of_the_two() -> None:
    assert blame([("a", "b")], [("a", "b")]) == Blame([], [frozenset("ab")])


def test_nothing_failed() -> None:
    assert blame([("a", "b"), ("b", "c")], []) == Blame([], [])
