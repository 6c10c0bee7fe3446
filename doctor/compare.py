"""What changed between runs: shape, pace, where the time goes, numbers; over several sizes a scaling law. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from doctor.evidence import EvidenceSet
from doctor.evidence.job import JobFacts
from doctor.evidence.kineto import TraceTimes
from doctor.rules.fleet import fleet_of
from doctor.rules.straggler import series_of

NOTICEABLE = 0.05  # relative change of a pace that is worth a line
LOSS_DIFFERS = 1e-5  # relative
WARM_STEPS = 1


@dataclass(frozen=True)
class Run:
    """One run in numbers. Seconds; None where the evidence does not tell."""

    name: str
    ranks: int
    hosts: int
    mesh: str
    steps: int
    step_s: float | None
    data_s: float | None
    exposed_s: float | None  # communication that nothing hides, per trace
    losses: dict[int, float]


def run_of(name: str, evidence: EvidenceSet) -> Run:
    """Measure one run's evidence."""
    fleet, series = evidence.once(fleet_of), series_of(evidence)
    job = next(iter(evidence.of(JobFacts)), None)
    traces = evidence.of(TraceTimes)
    told = next((one for one in series.values() if any(map(math.isfinite, one.loss))), None)
    losses = dict(zip(told.steps, told.loss, strict=True)) if told else {}
    return Run(
        name,
        job.world_size if job else max(len(fleet.world), len(series)),
        len(set(job.hosts.values())) if job else len(set(fleet.hosts.values())),
        ",".join(f"{axis}={degree}" for axis, degree in job.mesh.items()) if job else "",
        max((one.last for one in series.values()), default=0),
        _middle([value for one in series.values() for value in one.step_s[WARM_STEPS:]]),
        _middle([value for one in series.values() for value in one.data_s[WARM_STEPS:]]),
        _middle([one.exposed_s for one in traces]),
        losses,
    )


def differences(before: Run, after: Run) -> list[str]:
    """Sentences on what changed, the shape first; empty when nothing noticeable did."""
    said = []
    for field in ("ranks", "hosts", "mesh"):
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            said.append(f"{field}: {old or 'not known'} → {new or 'not known'}")
    for field, words in (("step_s", "a step"), ("data_s", "waiting for data"), ("exposed_s", "exposed communication")):
        old, new = getattr(before, field), getattr(after, field)
        if old and new and abs(new / old - 1) > NOTICEABLE:
            said.append(f"{words}: {old:.4f} s → {new:.4f} s ({new / old - 1:+.0%})")
    parted = [
        step for step in sorted(before.losses.keys() & after.losses.keys())
        if not math.isclose(before.losses[step], after.losses[step], rel_tol=LOSS_DIFFERS)
    ]  # fmt: skip
    if parted:
        step = parted[0]
        said.append(f"loss: differs from step {step} on ({before.losses[step]:.6f} → {after.losses[step]:.6f})")
    return said


@dataclass(frozen=True)
class Scaling:
    """Gunther's universal scalability law, X(n) = λn / (1 + σ(n−1) + κn(n−1)): contention σ, coherency κ."""

    single: float  # λ: steps a second of one rank
    contention: float
    coherency: float

    def rate(self, ranks: int) -> float:
        spread = 1 + self.contention * (ranks - 1) + self.coherency * ranks * (ranks - 1)
        return self.single * ranks / spread

    def efficiency(self, ranks: int) -> float:
        return self.rate(ranks) / (self.single * ranks)


def scaling_of(runs: Sequence[Run]) -> Scaling | None:
    """Fit the law to runs of the same global batch; it takes three sizes."""
    import numpy as np

    points = sorted({(run.ranks, 1 / run.step_s) for run in runs if run.step_s})
    if len({ranks for ranks, _ in points}) < 3:
        return None
    sizes = np.array([ranks for ranks, _ in points], dtype=float)
    cost = sizes / np.array([rate for _, rate in points])
    terms = np.stack([np.ones_like(sizes), sizes - 1, sizes * (sizes - 1)], axis=1)
    base, contention, coherency = np.linalg.lstsq(terms, cost, rcond=None)[0]
    return Scaling(1 / base, contention / base, coherency / base)


def document(runs: Sequence[Run]) -> dict[str, Any]:
    """The JSON document of `ddoctor compare`."""
    scaling = scaling_of(runs)
    return {
        "runs": [{key: value for key, value in vars(run).items() if key != "losses"} for run in runs],
        "differences": [differences(left, right) for left, right in itertools.pairwise(runs)],
        "scaling": None if scaling is None else vars(scaling),
    }


def _middle(values: Sequence[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return median(known) if known else None
