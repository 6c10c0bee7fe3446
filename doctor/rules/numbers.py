"""Numbers that went wrong, from progress records: where a loss or gradient norm first was not finite, who disagrees."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.evidence.processes import ProcessState
from doctor.rules import Rule
from doctor.rules.fleet import fleet_of
from doctor.rules.straggler import series_of
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding

FIX = (
    "Look at that step's data and learning rate on the rank named; torch.autograd.detect_anomaly() finds the "
    "operation, a smaller learning rate or gradient clipping often helps."
)
_NUMERIC = re.compile(r"FloatingPointError|(?i:\b(?:loss|norm|grad\w*)\b.*\b(?:nan|inf)\b|not finite|non-?finite)")


def is_numeric(error: str) -> bool:
    """Whether an exception's last line says that a number was not finite."""
    return bool(_NUMERIC.search(error))


def find_ended_by_numbers(evidence: EvidenceSet) -> Iterator[Finding]:
    """Ranks that ended because a check found a number that is not finite."""
    ended = [one for one in evidence.of(ProcessState) if one.rank is not None and is_numeric(one.error)]
    ranks = tuple(sorted({one.rank for one in ended if one.rank is not None}))
    if ranks:
        fleet, first = evidence.once(fleet_of), min(ended, key=lambda one: one.time)
        after = f" after step {first.step}" if first.step is not None else ""
        yield Finding(
            "numeric.nonfinite",
            "error",
            f"{name_ranks(ranks)} ended{after} since a number is not finite: {first.error}",
            FIX,
            0.9,
            ranks=ranks,
            hosts=fleet.hosts_of(ranks),
            coordinates=fleet.coordinates_of(ranks),
            detail={"step": first.step, "time": first.time},
            evidence=[Evidence("process", f"rank {one.rank}, {one.where}", one.error) for one in ended[:4]],
        )


def find_nonfinite(evidence: EvidenceSet) -> Iterator[Finding]:
    """The first step at which a rank reports a value that is not finite."""
    series = series_of(evidence)
    begun = {rank: min(one.nonfinite) for rank, one in series.items() if one.nonfinite}
    if not begun:
        return
    step = min(step for step, _ in begun.values())
    ranks = tuple(rank for rank, (at, _) in begun.items() if at == step)
    field = begun[ranks[0]][1]
    fleet = evidence.once(fleet_of)
    alone = f", {name_ranks(ranks)} alone" if len(ranks) < len(series) else ""
    yield Finding(
        "numeric.nonfinite",
        "error",
        f"The {field} is not finite since step {step}{alone}.",
        FIX,
        0.9 if len(ranks) < len(series) else 0.8,
        ranks=ranks,
        hosts=fleet.hosts_of(ranks),
        coordinates=fleet.coordinates_of(ranks),
        detail={"step": step, "field": field},
        evidence=[Evidence("progress", series[rank].where, f"{field} at step {step}") for rank in ranks[:4]],
    )


RULES = (
    Rule(("numeric.nonfinite",), (), find_nonfinite),
    Rule(("numeric.nonfinite",), ("hang",), find_ended_by_numbers),
)
