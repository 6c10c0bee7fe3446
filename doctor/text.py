"""Words for sets of ranks and hosts, folded so that a thousand of them fit a line."""

from __future__ import annotations

from collections.abc import Collection

LISTED = 6  # so many ranks are listed; more are folded


def fold(numbers: Collection[int]) -> str:
    """`0-3,7`."""
    from ClusterShell.RangeSet import RangeSet

    return str(RangeSet.fromlist([str(number) for number in sorted(numbers)])) if numbers else ""


def name_ranks(ranks: Collection[int]) -> str:
    """`rank 3`, `ranks 1, 4` or `ranks 0-511,513 (513 of them)`."""
    if len(ranks) == 1:
        return f"rank {next(iter(ranks))}"
    if len(ranks) <= LISTED:
        return "ranks " + ", ".join(map(str, sorted(ranks)))
    return f"ranks {fold(ranks)} ({len(ranks)} of them)"


def fold_hosts(hosts: Collection[str]) -> str:
    """`node[1-5,7]`."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return str(NodeSet.fromlist(sorted(hosts)))
    except NodeSetException:
        return ",".join(sorted(hosts))


def plural(count: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
