"""The order of nodes that torchrun's c10d rendezvous would give, which knows nothing of a plan."""

from __future__ import annotations

from collections.abc import Sequence


def c10d_order(hosts: Sequence[str]) -> list[str]:
    """Nodes in the order of their ranks: c10d sorts addresses as strings and ignores --node-rank (n10 before n2)."""
    return sorted(hosts)


def order_warning(hosts: Sequence[str]) -> str | None:
    """What goes wrong if the planned nodes, in rank order, meet by c10d; None if their order is the same."""
    given = c10d_order(hosts)
    moved = [rank for rank, (ours, theirs) in enumerate(zip(hosts, given, strict=True)) if ours != theirs]
    if not moved:
        return None
    first = moved[0]
    return (
        f"a c10d rendezvous would sort these hosts as strings: {len(moved)} of {len(hosts)} nodes would get another "
        f"rank, first {given[first]} instead of {hosts[first]} as node {first}; dlaunch uses static rendezvous"
    )
