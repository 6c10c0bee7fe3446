"""Who is paired with whom, and who is to blame when pairs fail. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

Pair = frozenset[str]
ALL_PAIRS = 12  # up to so many hosts everybody calls everybody
BLAMED = 0.6  # share of a host's pairs that must have failed before it is blamed and not its links


@dataclass(frozen=True)
class Blame:
    """Hosts whose pairs failed as a whole, and pairs that failed between hosts that are otherwise fine."""

    hosts: Sequence[str]
    links: Sequence[Pair]


def rounds(names: Sequence[str], most: int) -> list[list[tuple[str, str]]]:
    """A round-robin tournament, at most `most` rounds of it: in each a host meets one other that it has not met yet.

    The circle method: one stands, the others go round. With an odd number one rests in each round.
    """
    circle: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    half = len(circle) // 2
    played = []
    for _ in range(min(most, len(circle) - 1)):
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        played.append([(a, b) for a, b in pairs if a is not None and b is not None])
        circle.insert(1, circle.pop())
    return played


def callees(names: Sequence[str]) -> dict[str, list[str]]:
    """Whom each host calls: all others; among many hosts those 1, 2, 4, … places on, so that log2 n call each."""
    size = len(names)
    steps = range(1, size) if size <= ALL_PAIRS else [1 << bit for bit in range((size - 1).bit_length())]
    return {name: [names[(place + step) % size] for step in steps] for place, name in enumerate(names)}


def blame(measured: Iterable[Collection[str]], failed: Iterable[Collection[str]]) -> Blame:
    """The fewest culprits: again and again the host with most of its remaining pairs failed; what is left are links."""
    left = {frozenset(pair) for pair in measured}
    bad = {frozenset(pair) for pair in failed} & left
    hosts = []
    while bad:
        tried, lost = (Counter(name for pair in pairs for name in pair) for pairs in (left, bad))
        worst = max(sorted(lost), key=lambda name: (lost[name] / tried[name], lost[name]))
        if lost[worst] < 2 or lost[worst] / tried[worst] < BLAMED:
            break
        hosts.append(worst)
        left = {pair for pair in left if worst not in pair}
        bad &= left
    return Blame(hosts, sorted(bad, key=sorted))
