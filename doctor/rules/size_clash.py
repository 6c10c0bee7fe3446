"""Other sizes in one call on gloo: the process that received too much aborts, it or the one that sent is odd."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.evidence.gloo import SizeClash
from doctor.rules import Rule
from doctor.rules.fleet import fleet_of
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding


def find_clash(evidence: EvidenceSet) -> Iterator[Finding]:
    """One finding for each size that did not fit."""
    fleet = evidence.once(fleet_of)
    for clash in evidence.of(SizeClash):
        ranks: tuple[int, ...] = ()
        if clash.rank is not None:
            size = len(fleet.world) or clash.rank + 2
            ranks = tuple(sorted({clash.rank, (clash.rank + 1) % size}))  # gloo's rings send to the rank before
        who = f"rank {clash.rank}" if clash.rank is not None else "a process"
        yield Finding(
            "hang.shape_mismatch",
            "error",
            f"{who} received {clash.received} bytes where its own call expected {clash.expected}, and aborted: "
            f"{name_ranks(ranks) if ranks else 'two ranks'} gave other sizes or types to one call, or made different "
            "calls.",
            "Make the tensor equally large on all ranks; TORCH_DISTRIBUTED_DEBUG=DETAIL names the call before gloo "
            "aborts.",
            0.7,
            ranks=ranks,
            hosts=fleet.hosts_of(ranks),
            coordinates=fleet.coordinates_of(ranks),
            detail={"received": clash.received, "expected": clash.expected},
            evidence=[Evidence("log", clash.where, f"op.preamble.length {clash.received} vs {clash.expected}")],
        )


RULES = (Rule(("hang.shape_mismatch",), ("hang",), find_clash),)
