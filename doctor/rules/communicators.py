"""Communicators as NCCL's own log shows them: ranks that never joined one, and calls that differ (subsystem COLL)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from doctor.evidence import EvidenceSet
from doctor.evidence.nccl_log import NcclComm, NcclProcess
from doctor.evidence.rank_table import may_be_uneven
from doctor.evidence.watchdog import WorkTimeout
from doctor.rules import Rule
from doctor.rules.majority import compared
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding

FEW = 64  # so many ranks may be missing and still be named


@dataclass(frozen=True)
class Part:
    """One process' part in a communicator."""

    process: NcclProcess
    comm: NcclComm

    @property
    def call(self) -> tuple[int, str, int] | None:
        """(count, operation, elements) of its last call, where the log shows calls."""
        return self.process.calls.get(self.comm.pointer)


def communicators(evidence: EvidenceSet) -> Mapping[str, Sequence[Part]]:
    """Identity → parts. Pointers (before 2.16) tell nothing across processes and are left out."""
    found: defaultdict[str, list[Part]] = defaultdict(list)
    for process in evidence.of(NcclProcess):
        for comm in process.comms:
            if comm.identity != comm.pointer:
                found[comm.identity].append(Part(process, comm))
    return dict(sorted(found.items()))


def unjoined(evidence: EvidenceSet) -> Iterator[Finding]:
    """A communicator that some ranks began and none completed: the others never came."""
    for identity, parts in evidence.once(communicators).items():
        size = parts[0].comm.size
        seen = {part.comm.rank for part in parts}
        missing = sorted(set(range(size)) - seen)
        if any(part.comm.complete for part in parts) or len(seen) < 2 or not 0 < len(missing) <= FEW:
            continue
        yield Finding(
            "hang.rendezvous",
            "error",
            f"{name_ranks(missing)} of communicator {identity} ({size} ranks) never began to join it, while"
            f" {name_ranks(seen)} wait in its initialisation.",
            "look at the logs and stacks of these ranks; they are still elsewhere, or cannot be reached",
            0.6,
            tuple(missing),
            detail={"communicator": identity, "size": size},
            evidence=tuple(Evidence("nccl_log", part.process.where, f"{identity}: Init START") for part in parts[:4]),
            missing=["the logs of the ranks that are missing here"],
        )


def calls(evidence: EvidenceSet) -> Iterator[Finding]:
    """Last calls of one communicator, side by side."""
    for identity, parts in evidence.once(communicators).items():
        told = {part.comm.rank: call for part in parts if (call := part.call)}
        if len(told) < 2:
            continue
        counts = {rank: call[0] for rank, call in told.items()}
        low, high = min(counts.values()), max(counts.values())
        where = tuple(Evidence("nccl_log", part.process.where, f"last call {part.call}") for part in parts[:4])
        if low != high:
            behind = sorted(rank for rank, count in counts.items() if count == low)
            waiting = evidence.has(WorkTimeout)  # without a sign of waiting the log may just be some lines behind
            yield Finding(
                "hang.absent_rank",
                "error" if waiting else "info",
                f"{name_ranks(behind)} of communicator {identity} made {low:,} calls ({told[behind[0]][1]} last) where"
                f" others made {high:,}: those behind did not come to the next call.",
                "look at the stacks of the ranks behind (the log may also be cut off)",
                0.55,
                tuple(behind),
                detail={"communicator": identity, "behind": low, "ahead": high},
                evidence=where,
            )
        else:
            yield from _different(identity, told, where)


def _different(
    identity: str, told: Mapping[int, tuple[int, str, int]], where: tuple[Evidence, ...]
) -> Iterator[Finding]:
    ops = {call[1] for call in told.values()}
    sizes = {call[2] for call in told.values()}
    if len(ops) == 1 and (len(sizes) == 1 or any(map(may_be_uneven, ops))):
        return
    odd, listed = compared({rank: f"{op} of {elements:,} elements" for rank, (_, op, elements) in told.items()})
    yield Finding(
        "hang.desync" if len(ops) > 1 else "hang.shape_mismatch",
        "error",
        f"At call {next(iter(told.values()))[0]:,} of communicator {identity} ranks differ: {listed}.",
        "look for a branch, loop length or size that not all ranks share",
        0.75,
        odd,
        detail={"communicator": identity},
        evidence=where,
    )


RULES = (
    Rule(("hang.rendezvous",), ("hang",), unjoined),
    Rule(("hang.absent_rank", "hang.desync", "hang.shape_mismatch"), ("hang",), calls),
)
