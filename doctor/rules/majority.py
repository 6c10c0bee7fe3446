"""Who differs from the rest: what most have in common is taken as usual. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeVar

from doctor.text import name_ranks

K = TypeVar("K", int, str)
T = TypeVar("T")


def minority(groups: Mapping[K, Sequence[T]]) -> list[T]:
    """The members of all groups but the largest; of equally large ones the last by its key counts as that."""
    usual = max(groups, key=lambda key: (len(groups[key]), key))
    return [one for key, members in groups.items() if key != usual for one in members]


def compared(words: Mapping[int, str]) -> tuple[tuple[int, ...], str]:
    """(the ranks of which something else is said than of most, `ranks 0, 1: this; rank 2: that`)."""
    by_word: defaultdict[str, list[int]] = defaultdict(list)
    for rank, word in sorted(words.items()):
        by_word[word].append(rank)
    listed = "; ".join(f"{name_ranks(ranks)}: {word}" for word, ranks in by_word.items())
    return tuple(sorted(minority(by_word))), listed
