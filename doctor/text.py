"""Words for sets of ranks, folded so that a thousand of them fit a line."""

from __future__ import annotations

from collections.abc import Collection

from launcher.hosts.names import fold as fold_hosts
from launcher.hosts.names import fold_numbers as fold

__all__ = ["fold", "fold_hosts", "name_ranks", "plural"]

LISTED = 6  # so many ranks are listed; more are folded


def name_ranks(ranks: Collection[int]) -> str:
    """`rank 3`, `ranks 1, 4` or `ranks 0-511,513 (513 of them)`."""
    if len(ranks) == 1:
        return f"rank {next(iter(ranks))}"
    if len(ranks) <= LISTED:
        return "ranks " + ", ".join(map(str, sorted(ranks)))
    return f"ranks {fold(ranks)} ({len(ranks)} of them)"


def plural(count: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
