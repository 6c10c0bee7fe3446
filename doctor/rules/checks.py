"""What the libraries' own checks report: torch's fingerprints of collectives (TORCH_DISTRIBUTED_DEBUG=DETAIL) and
Horovod's and HCCL's names of ranks that have not come."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.evidence.rank_table import up_to_largest
from doctor.rules import Rule
from doctor.rules.events import events_of, said
from doctor.text import name_ranks
from launcher.common.finding import Finding

_SEQ = re.compile(r"SequenceNumber=(\d+)")
_OP = re.compile(r"OpType=(\w+)")
_SHAPE = re.compile(r"TensorShape=(\[[^\]]*\])")
_BRANCH = "look for a branch, loop length or exception that not all ranks share"


@dataclass(frozen=True)
class Told:
    """A call of a rank as torch's check describes it."""

    rank: int
    op: str
    number: int | None
    shape: str

    def __str__(self) -> str:
        return f"rank {self.rank} is in {self.op}" + ("" if self.number is None else f" number {self.number}")


def fingerprints(evidence: EvidenceSet) -> Iterator[Finding]:
    for event in events_of(evidence, "fingerprint"):
        yield _fingerprint(event, _told(event, "a"), _told(event, "b"))
    if own := events_of(evidence, "fingerprint_own"):
        calls = {call.rank: call for call in (_told(event, "a") for event in own)}
        yield _own(own, [calls[rank] for rank in sorted(calls)])


def _told(event: LogEvent, who: str) -> Told:
    text = event[f"{who}_what"].partition("Collectives differ")[0]
    number = _first(_SEQ, text)
    return Told(int(event[who]), _first(_OP, text) or "?", int(number) if number else None, _first(_SHAPE, text))


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""


def _own(events: Sequence[LogEvent], calls: Sequence[Told]) -> Finding:
    """Lines of which each tells the call of one rank alone; what the others called stands in theirs, if anywhere."""
    several = len(calls) > 1
    sizes = len({call.op for call in calls}) == 1 and len({call.shape for call in calls}) > 1
    told = ", ".join(f"rank {call.rank} in {call.op} of {call.shape or 'no size'}" for call in calls)
    return said(
        events,
        "hang.shape_mismatch" if sizes else "hang.desync",
        f"torch's check saw that ranks call {'one collective with other sizes' if sizes else 'different collectives'}:"
        f" {told}.",
        _BRANCH,
        0.85 if several else 0.6,
        ranks=[call.rank for call in calls],
        missing=() if several else ("the same line of the other ranks",),
    )


def _fingerprint(event: LogEvent, one: Told, other: Told) -> Finding:
    known: dict[str, Any] = {"ops": [one.op, other.op], "numbers": [one.number, other.number]}
    ranks = (one.rank, other.rank)
    both = f"{one}, {other}"
    if one.op == other.op == "BARRIER":
        cause = f"The debug mode reports a mismatch of barriers ({both}): known to be wrong in correct programs."
        fix = "run without TORCH_DISTRIBUTED_DEBUG=DETAIL; believe it only if the job hangs without it too"
        return said([event], "benign.debug_mode_false_mismatch", cause, fix, 0.6, "warning", ranks=ranks, **known)
    if one.number != other.number and 0 in (one.number, other.number):
        gone, here = (one, other) if one.number == 0 else (other, one)
        fix = f"{_BRANCH}; look at the stack of rank {gone.rank}"
        return said([event], "hang.desync", _absence(gone, here), fix, 0.8, ranks=(gone.rank,), **known)
    if one.op == other.op and one.number == other.number and one.shape != other.shape:
        cause = f"Sizes differ where {both}: rank {one.rank} gave {one.shape}, rank {other.rank} {other.shape}."
        fix = "make the sizes equal: uneven last batches, padding, other model parts"
        return said([event], "hang.shape_mismatch", cause, fix, 0.9, ranks=ranks, **known)
    cause = f"Ranks call different collectives: {both}."
    return said([event], "hang.desync", cause, _BRANCH, 0.9, ranks=ranks, **known)


def _absence(gone: Told, here: Told) -> str:
    """Number 0 beside a real number is no call but what an absent rank looks like."""
    return (
        f"rank {gone.rank} did not make the call that rank {here.rank} made ({here.op} number {here.number}): the"
        f" operation that is shown for rank {gone.rank} with number 0 is no call but what an absent rank looks like."
    )


def stalled(evidence: EvidenceSet) -> Iterator[Finding]:
    """Horovod names the ranks that have not asked for a tensor, or those that have."""
    missing = {rank for event in events_of(evidence, "horovod_stalled") for rank in _ranks(event)}
    ready = {rank for event in events_of(evidence, "horovod_ready") for rank in _ranks(event)}
    absent = tuple(sorted(missing or set(up_to_largest(ready)) - ready))
    found = events_of(evidence, "horovod_stalled", "horovod_ready")
    if absent:
        yield said(
            found,
            "hang.absent_rank",
            f"Horovod waits in {found[0]['op']} for {name_ranks(absent)}, which did not come to it.",
            f"{_BRANCH}; look at the stacks of these ranks (py-spy dump)",
            0.8,
            ranks=absent,
            op=found[0]["op"],
        )


def notified(evidence: EvidenceSet) -> Iterator[Finding]:
    """HCCL names the rank whose part of a collective did not arrive."""
    found = events_of(evidence, "hccl_notify")
    absent = tuple(sorted({int(event["rank"]) for event in found}))
    if absent:
        yield said(
            found,
            "hang.absent_rank",
            f"HCCL waits in vain for {name_ranks(absent)}: it did not come to the collective, or its link is broken.",
            f"look at the stacks and first errors of {name_ranks(absent)}; {_BRANCH}",
            0.65,
            ranks=absent,
        )


def _ranks(event: LogEvent) -> list[int]:
    named = [int(rank) for rank in re.findall(r"\d+", event["ranks"])]
    return named or ([] if event.origin.rank is None else [event.origin.rank])


RULES = (
    Rule(("hang.desync", "hang.shape_mismatch", "benign.debug_mode_false_mismatch"), ("hang",), fingerprints),
    Rule(("hang.absent_rank",), ("hang",), stalled),
    Rule(("hang.absent_rank",), ("hang",), notified),
)
