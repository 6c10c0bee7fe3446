"""Numbers that went wrong, from progress records: where a loss or gradient norm first was not finite, who disagrees."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.evidence.processes import ProcessState
from doctor.evidence.progress import ProgressSeries
from doctor.rules import Rule
from doctor.rules.events import events_of, ranks_of, said, who
from doctor.rules.straggler import series_of
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding
from launcher.common.progress.grammar import read_line

FIX = (
    "Look at that step's data and learning rate on the rank named; torch.autograd.detect_anomaly() finds the "
    "operation, a smaller learning rate or gradient clipping often helps."
)
FIX_REPLICAS = (
    "Find what one replica alone does: parameters changed outside the optimizer, buffers that nobody broadcasts, a "
    "step that one skips; compare hashes of the parameters after each step to find the first difference."
)
_NUMERIC = re.compile(r"FloatingPointError|(?i:\b(?:loss|norm|grad\w*)\b.*\b(?:nan|inf)\b|not finite|non-?finite)")


_REPLICAS = re.compile(r"(?i)\breplicas (?:differ|diverge)|(?:param|weight|hash)\w*.*(?:differ|diverge).*\breplica")
_APART = re.compile(r"\branks? \[?(\d+(?:, ?\d+)*)")
EQUAL, APART = 1e-6, 1e-4  # of a reduced norm, relative: rounding, and no rounding any more
MIN_STEPS = 3


def is_numeric(error: str) -> bool:
    """Whether an exception's last line says that a number was not finite."""
    return bool(_NUMERIC.search(error) or _REPLICAS.search(error))


def find_ended_by_numbers(evidence: EvidenceSet) -> Iterator[Finding]:
    """Ranks that ended because a check found a number that is not finite."""
    stopped = [one for one in evidence.of(ProcessState) if one.rank is not None and is_numeric(one.error)]
    apart = [one for one in stopped if _REPLICAS.search(one.error)]
    if apart:
        yield _apart(apart[0])
    ended = [one for one in stopped if one not in apart]
    ranks = tuple(sorted({one.rank for one in ended if one.rank is not None}))
    if ranks:
        first = min(ended, key=lambda one: one.time)
        after = f" after step {first.step}" if first.step is not None else ""
        yield Finding(
            "numeric.nonfinite",
            "error",
            f"{name_ranks(ranks)} ended{after} since a number is not finite: {first.error}",
            FIX,
            0.9,
            ranks=ranks,
            detail={"step": first.step, "time": first.time},
            evidence=[Evidence("process", f"rank {one.rank}, {one.where}", one.error) for one in ended[:4]],
        )


def _apart(first: ProcessState) -> Finding:
    named = _APART.search(first.error)
    return Finding(
        "numeric.replica_divergence",
        "error",
        f"A comparison of replicas ended the job: {first.error}",
        FIX_REPLICAS,
        0.95,
        ranks=tuple(int(rank) for rank in named[1].split(",")) if named else (),
        detail={"time": first.time},
        evidence=[Evidence("process", f"rank {first.rank}, {first.where}", first.error)],
    )


def find_divergence(evidence: EvidenceSet) -> Iterator[Finding]:
    """A norm that is reduced over all ranks, equal on all of them at first and from some step on no more."""
    norms = {rank: _by_step(one) for rank, one in series_of(evidence).items()}
    norms = {rank: values for rank, values in norms.items() if len(values) >= 2 * MIN_STEPS}
    common = sorted(set.intersection(*map(set, norms.values()))) if len(norms) > 1 else []
    parted = [step for step in common if _spread(norms, step) > APART]
    agreed = [step for step in common if _spread(norms, step) <= EQUAL]
    if len(parted) < MIN_STEPS or len(agreed) < MIN_STEPS or parted[0] < agreed[-1]:
        return
    values = {rank: round(seen[parted[0]], 9) for rank, seen in norms.items()}
    usual = Counter(values.values()).most_common(1)[0][0]
    odd = tuple(rank for rank, value in values.items() if value != usual)
    yield Finding(
        "numeric.replica_divergence",
        "error",
        f"The gradient norm, equal on all ranks up to step {agreed[-1]}, differs since step {parted[0]}: "
        f"{name_ranks(odd)} went apart from the others.",
        FIX_REPLICAS,
        0.8,
        ranks=odd,
        detail={"step": parted[0]},
        evidence=[
            Evidence("progress", f"rank {rank}", f"grad_norm {values[rank]} at step {parted[0]}") for rank in odd[:4]
        ],
    )


def _by_step(one: ProgressSeries) -> dict[int, float]:
    return {step: norm for step, norm in zip(one.steps, one.grad_norm, strict=True) if math.isfinite(norm)}


def _spread(norms: Mapping[int, Mapping[int, float]], step: int) -> float:
    """Largest difference between ranks, relative to the largest value."""
    values = [seen[step] for seen in norms.values()]
    return (max(values) - min(values)) / (max(map(abs, values)) or 1.0)


def find_in_logs(evidence: EvidenceSet) -> Iterator[Finding]:
    """Lines that say that a value is not finite: the first step that one tells is where it began."""
    found = events_of(evidence, "nonfinite")
    if not found:
        return
    steps = [_step(event) for event in found]
    begun = min((step for step in steps if step is not None), default=None)
    first = [event for event, step in zip(found, steps, strict=True) if step == begun] or list(found)
    ranks = sorted({int(event["rank"]) for event in first if event["rank"]} | set(ranks_of(first)))
    at = f" at step {begun}" if begun is not None else ""
    author = name_ranks(ranks) if ranks else who(first)
    lone = _alone_tells(ranks, found, evidence)
    whose = f"{author} alone prints it: any rank may have made it" if lone else first[0]["what"]
    yield said(
        first,
        "numeric.nonfinite",
        f"{author} met a value that is not finite{at} ({whose}).",
        FIX,
        0.8 if ranks or at else 0.7,
        "warning",
        ranks=() if lone else ranks,
        step=begun,
    )


def _alone_tells(ranks: Sequence[int], found: Sequence[LogEvent], evidence: EvidenceSet) -> bool:
    """Whether other ranks run and tell no numbers: one that is not finite soon reaches all, who print it or not."""
    states = [one for one in evidence.of(ProcessState) if one.rank is not None]
    told = {one.rank for one in states if one.step is not None} | set(ranks_of(found))
    return len(ranks) == 1 and told <= set(ranks) and len({one.rank for one in states}) > 1


def _step(event: LogEvent) -> int | None:
    reading = read_line(event.text)
    return reading.progress.step if reading else None


def find_nonfinite(evidence: EvidenceSet) -> Iterator[Finding]:
    """The first step at which a rank reports a value that is not finite."""
    series = series_of(evidence)
    begun = {rank: min(one.nonfinite) for rank, one in series.items() if one.nonfinite}
    if not begun:
        return
    step = min(step for step, _ in begun.values())
    ranks = tuple(rank for rank, (at, _) in begun.items() if at == step)
    field = begun[ranks[0]][1]
    alone = f", {name_ranks(ranks)} alone" if len(ranks) < len(series) else ""
    yield Finding(
        "numeric.nonfinite",
        "error",
        f"The {field} is not finite since step {step}{alone}.",
        FIX,
        0.9 if len(ranks) < len(series) else 0.8,
        ranks=ranks,
        detail={"step": step, "field": field},
        evidence=[Evidence("progress", series[rank].where, f"{field} at step {step}") for rank in ranks[:4]],
    )


RULES = (
    Rule(("numeric.nonfinite",), (), find_nonfinite),
    Rule(("numeric.nonfinite",), (), find_in_logs),
    Rule(("numeric.replica_divergence",), (), find_divergence),
    Rule(("numeric.nonfinite", "numeric.replica_divergence"), ("hang",), find_ended_by_numbers),
)
