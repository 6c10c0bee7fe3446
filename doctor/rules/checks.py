"""What the libraries' own checks report: torch's fingerprints of collectives (TORCH_DISTRIBUTED_DEBUG=DETAIL) and
Horovod's and HCCL's names of ranks that have not come."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.rules import Rule
from doctor.rules.events import events_of, said
from doctor.text import name_ranks
from launcher.common.finding import Finding

_SEQ = re.compile(r"SequenceNumber=(\d+)")
_OP = re.compile(r"OpType=(\w+)")
_SHAPE = re.compile(r"TensorShape=(\[[^\]]*\])")
_BRANCH = "look for a branch, loop length or exception that not all ranks share"


def fingerprints(evidence: EvidenceSet) -> Iterator[Finding]:
    for event in events_of(evidence, "fingerprint"):
        yield _fingerprint(event)
    if own := events_of(evidence, "fingerprint_own"):
        yield _own(own)


def _own(events: Sequence[LogEvent]) -> Finding:
    """Lines of which each tells the call of one rank alone; what the others called stands in theirs, if anywhere."""
    calls = {
        int(one["a"]): (_first(_OP, one["a_what"]), _first(_SHAPE, one["a_what"]))
        for one in sorted(events, key=lambda one: int(one["a"]))
    }
    sizes = len({op for op, _ in calls.values()}) == 1 and len(set(calls.values())) > 1
    told = ", ".join(f"rank {rank} in {op} of {shape or 'no size'}" for rank, (op, shape) in calls.items())
    return said(
        events,
        "hang.shape_mismatch" if sizes else "hang.desync",
        f"torch's check saw that ranks call {'one collective with other sizes' if sizes else 'different collectives'}:"
        f" {told}.",
        _BRANCH,
        0.85 if len(calls) > 1 else 0.6,
        ranks=tuple(calls),
        missing=() if len(calls) > 1 else ("the same line of the other ranks",),
    )


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""


def _fingerprint(event: LogEvent) -> Finding:
    ranks = (int(event["a"]), int(event["b"]))
    ours, theirs = event["a_what"], event["b_what"].split("Collectives differ")[0]
    numbers = [int(found[1]) if (found := _SEQ.search(text)) else None for text in (ours, theirs)]
    ops = [found[1] if (found := _OP.search(text)) else "?" for text in (ours, theirs)]
    shapes = [found[1] if (found := _SHAPE.search(text)) else None for text in (ours, theirs)]
    both = f"rank {ranks[0]} is in {ops[0]} number {numbers[0]}, rank {ranks[1]} in {ops[1]} number {numbers[1]}"
    known: dict[str, Any] = {"ops": ops, "numbers": numbers}
    if set(ops) == {"BARRIER"}:
        cause = f"The debug mode reports a mismatch of barriers ({both}): known to be wrong in correct programs."
        fix = "run without TORCH_DISTRIBUTED_DEBUG=DETAIL; believe it only if the job hangs without it too"
        return said([event], "benign.debug_mode_false_mismatch", cause, fix, 0.6, "warning", ranks=ranks, **known)
    if 0 in numbers and numbers[0] != numbers[1]:
        return _absent(event, ranks[numbers.index(0)], ranks[1 - numbers.index(0)], ops, numbers)
    if ops[0] == ops[1] and numbers[0] == numbers[1] and shapes[0] != shapes[1]:
        cause = (
            f"Sizes differ: rank {ranks[0]} calls {ops[0]} with {shapes[0]}, rank {ranks[1]} with {shapes[1]} (number"
            f" {numbers[0]})."
        )
        fix = "make the sizes equal: uneven last batches, padding, other model parts"
        return said([event], "hang.shape_mismatch", cause, fix, 0.9, ranks=ranks, **known)
    return said(
        [event], "hang.desync", f"Ranks call different collectives: {both}.", _BRANCH, 0.9, ranks=ranks, **known
    )


def _absent(event: LogEvent, gone: int, here: int, ops: Sequence[str], numbers: Sequence[int | None]) -> Finding:
    """Number 0 beside a real number is no call but what an absent rank looks like."""
    at = 1 - numbers.index(0)
    cause = (
        f"rank {gone} did not make the call that rank {here} made ({ops[at]} number {numbers[at]}): the operation that"
        f" is shown for rank {gone} with number 0 is no call but what an absent rank looks like."
    )
    fix = f"{_BRANCH}; look at the stack of rank {gone}"
    return said([event], "hang.desync", cause, fix, 0.8, ranks=(gone,), ops=ops, numbers=numbers)


def stalled(evidence: EvidenceSet) -> Iterator[Finding]:
    """Horovod names the ranks that have not asked for a tensor, or those that have."""
    missing = {rank for event in events_of(evidence, "horovod_stalled") for rank in _ranks(event)}
    ready = {rank for event in events_of(evidence, "horovod_ready") for rank in _ranks(event)}
    absent = tuple(sorted(missing or set(range(max(ready, default=0))) - ready))
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
