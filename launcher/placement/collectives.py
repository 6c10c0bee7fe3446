"""What collectives send, by the definitions of nccl-tests (doc/PERFORMANCE.md)."""

from __future__ import annotations

SPREAD = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})


def bus_factor(op: str, members: int) -> float:
    """busbw / algbw: what a rank sends over what a whole tensor has."""
    if op == "all_reduce":
        return 2 * (members - 1) / members
    return (members - 1) / members if op in SPREAD else 1.0


def rounds(op: str, members: int) -> int:
    """How many messages a rank of a ring sends one after the other."""
    return {"all_reduce": 2 * (members - 1), "send": 1}.get(op, members - 1)
