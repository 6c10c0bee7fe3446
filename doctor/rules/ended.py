"""Who ended first: when a rank is gone, what its peers report afterwards are only consequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.gloo import SizeClash
from doctor.evidence.job import JobFacts
from doctor.evidence.processes import ProcessState
from doctor.rules import Rule, healthy
from doctor.rules.numbers import is_numeric
from doctor.rules.suspects import SUB_CAUSES
from doctor.text import name_ranks, plural
from launcher.common.finding import Evidence, Finding

TOGETHER_S = 0.05  # ends that are closer than this have no order
KILLED = (-15, -9)  # by torchrun, after another's failure
LOSSES = ("connection closed by peer", "connection reset by peer", "remote process", "remoteerror", "broken pipe")
DELIBERATE = "stopped"  # by its user; `stopping` also follows a failure


def find_first_end(evidence: EvidenceSet) -> Iterator[Finding]:
    """The rank that ended first in a job that failed, or that is gone from a job that still runs."""
    job = max(evidence.of(JobFacts), key=lambda one: one.attempt, default=None)
    if job is None or job.state == DELIBERATE or evidence.has(SizeClash):  # gloo says more than the end does
        return
    if job.state == "succeeded":
        yield healthy(f"the job ended well on all {plural(job.world_size, 'rank')}")
        return
    ended = _ended(evidence.of(ProcessState))
    if not ended or (len(ended) == job.world_size and not any(one.exit_status or one.error for one in ended)):
        return
    if all(one.exit_status in KILLED and not one.error for one in ended):
        return
    first = [one for one in ended if one.time - ended[0].time <= TOGETHER_S]
    left = [one for one in ended if not _lost_peer(one)]
    if all(map(_lost_peer, first)) and 0 < len(left) <= len(ended) / 2:
        yield _left(left)
        return
    culprits = [one for one in first if not _lost_peer(one) and one.exit_status not in KILLED] or first[:1]
    if not any(is_numeric(one.error) for one in culprits):  # that has a finding of its own
        yield _finding(culprits, len(ended), job.world_size)


def _ended(states: Sequence[ProcessState]) -> list[ProcessState]:
    """Ranks that the agents saw end, one record each, in the order of their ends."""
    by_rank = {one.rank: one for one in states if one.rank is not None and one.ended is not None}
    return sorted(by_rank.values(), key=lambda one: (one.time, one.rank or 0))


def _lost_peer(one: ProcessState) -> bool:
    """Ended by the news of a peer's end."""
    words = one.error.lower()
    return any(text in words for text in LOSSES)


def _left(left: Sequence[ProcessState]) -> Finding:
    """All that failed had lost a peer: who lost none has closed its connections."""
    ranks = tuple(sorted(one.rank for one in left if one.rank is not None))
    return Finding(
        "hang.absent_rank",
        "error",
        f"The other ranks lost their connections to {name_ranks(ranks)}, which lost none: it left the process group "
        f"before its peers had finished (a loop that ends early does that).",
        SUB_CAUSES["uneven_data"][1],
        0.7,
        ranks=ranks,
        detail={"sub_cause": "uneven_data", "time": left[0].time},
        evidence=[Evidence("process", f"rank {one.rank}, {one.where}", _status(one)) for one in left],
    )


def _finding(culprits: Sequence[ProcessState], ended: int, world_size: int) -> Finding:
    ranks = tuple(sorted(one.rank for one in culprits if one.rank is not None))
    first = culprits[0]
    sub_cause = "exception" if first.error else "dead"
    others = world_size - len(ranks)
    how = f"with {first.error!r}" if first.error else _status(first)
    peers = "its peers are only victims" if ended > len(ranks) else f"the other {others} wait for it"
    return Finding(
        "hang.absent_rank",
        "error",
        f"{name_ranks(ranks)} ended first, {how}"
        + (f", after step {first.step}" if first.step is not None else "")
        + f"; {peers}.",
        SUB_CAUSES[sub_cause][1],
        0.9,
        ranks=ranks,
        detail={"sub_cause": sub_cause, "time": first.time, "exit_status": first.exit_status},
        evidence=[
            Evidence("process", f"rank {one.rank}, {one.where}", f"{_status(one)} {one.error}") for one in culprits
        ],
    )


def _status(one: ProcessState) -> str:
    if one.exit_status is None:
        return "without an error"
    return f"by signal {-one.exit_status}" if one.exit_status < 0 else f"with exit status {one.exit_status}"


RULES = (Rule(("hang.absent_rank",), ("hang",), find_first_end),)
