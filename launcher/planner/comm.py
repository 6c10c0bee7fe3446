"""Measured collectives: bandwidths by the definitions of nccl-tests, and α and β fitted to them. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from launcher.common.node_reports.nccl_tests import parse_tables
from launcher.errors import InputError
from launcher.placement.collectives import bus_factor, rounds


@dataclass(frozen=True)
class Sample:
    """One size of one operation; `bytes` is the whole tensor."""

    scope: str
    op: str
    members: int
    bytes: int
    seconds: float

    @property
    def algbw(self) -> float:
        """GB/s."""
        return self.bytes / self.seconds / 1e9

    @property
    def busbw(self) -> float:
        return self.algbw * bus_factor(self.op, self.members)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "algbw": self.algbw, "busbw": self.busbw}


@dataclass(frozen=True)
class Fit:
    """`alpha` in seconds a message, `gbps` is 1/β as busbw in GB/s.

    `residual` is the root mean square of the relative errors; below `crossover` bytes latency takes most of the time.
    """

    scope: str
    op: str
    members: int
    alpha: float
    gbps: float
    residual: float
    crossover: float


def fit(samples: Sequence[Sample]) -> Fit | None:
    """Least squares of the relative errors of seconds = a + b·bytes with a ≥ 0; None where sizes do not tell b > 0."""
    first, points = samples[0], [(each.bytes, each.seconds) for each in samples]
    s_tt, s_xt, s_xx = (sum((x**power) / t**2 for x, t in points) for power in (0, 1, 2))
    s_t, s_x = sum(1 / t for _, t in points), sum(x / t for x, t in points)
    determinant = s_tt * s_xx - s_xt**2
    if len({x for x, _ in points}) < 2 or determinant <= 0:
        return None
    a, b = (s_t * s_xx - s_x * s_xt) / determinant, (s_tt * s_x - s_xt * s_t) / determinant
    if a < 0:
        a, b = 0.0, s_x / s_xx
    if b <= 0:
        return None
    errors = [((a + b * x) / t - 1) ** 2 for x, t in points]
    gbps = bus_factor(first.op, first.members) / b / 1e9
    alpha = a / rounds(first.op, first.members)
    return Fit(first.scope, first.op, first.members, alpha, gbps, math.sqrt(sum(errors) / len(errors)), a / b)


@dataclass(frozen=True)
class Measured:
    """All that a run of the benchmark told; `refused` says which operations the backend does not have.

    `sweep` holds the all-reduces of further runs, under the algorithm and protocol that NCCL was told to use.
    """

    samples: Sequence[Sample]
    refused: Mapping[str, str]
    backend: str = ""
    sweep: Mapping[tuple[str, str], Sequence[Sample]] = field(default_factory=dict)

    @property
    def fits(self) -> list[Fit]:
        kinds: dict[tuple[str, str, int], list[Sample]] = {}
        for each in self.samples:
            if each.bytes:
                kinds.setdefault((each.scope, each.op, each.members), []).append(each)
        return [found for each in kinds.values() if (found := fit(each))]

    def to_json(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "samples": [each.to_json() for each in self.samples],
            "fits": [asdict(each) for each in self.fits],
            "refused": dict(self.refused),
            "sweep": [
                {"algo": algo, "proto": proto, "samples": [each.to_json() for each in samples]}
                for (algo, proto), samples in self.sweep.items()
            ],
        }


def read_lines(lines: Iterable[str]) -> Measured:
    """What comm_script prints; other lines are passed over."""
    samples, refused, backend = [], {}, ""
    for line in lines:
        if not line.startswith(('{"scope"', '{"backend"')):
            continue
        record = json.loads(line)
        if "backend" in record:
            backend = record["backend"]
        elif "refused" in record:
            refused[record["op"]] = record["refused"]
        else:
            samples.append(Sample(**record))
    return Measured(samples, refused, backend)


def read_nccl_tests(text: str, where: str) -> Measured:
    """A table of all_reduce_perf, whose number of ranks follows from busbw / algbw. Raises InputError without rows.

    Its scope follows from the hosts that it lists: one, one for each rank, or others; `world` where it lists none.
    """
    table = parse_tables(text)
    rows = [row for row in table.rows if row.size and row.algbw]
    if not rows:
        raise InputError(
            "no rows of all_reduce_perf in it", where=where, help="all_reduce_perf -b 1K -e 1G -f 4 > FILE"
        )
    ratio = rows[-1].busbw / rows[-1].algbw
    if not 0.9 < ratio < 1.999:
        raise InputError(f"busbw is {ratio:.2f} × algbw, which is no all-reduce's", where=where)
    members = round(2 / (2 - ratio))
    hosts = len(table.hosts)
    scope = "inside" if hosts == 1 else "between" if hosts == members else "world"
    return Measured([Sample(scope, "all_reduce", members, row.size, row.time_us / 1e6) for row in rows], {}, "nccl")


def fastest(found: Measured) -> list[tuple[Sample, tuple[str, str], Sample]]:
    """For each size: the all-reduce as NCCL chooses, the algorithm and protocol that were quickest, and how quick."""
    best = []
    for each in found.samples:
        others = [
            (other.seconds, variant, other)
            for variant, samples in found.sweep.items()
            for other in samples
            if (other.scope, other.op, other.bytes) == (each.scope, each.op, each.bytes)
        ]
        if others:
            _, variant, sample = min(others, key=lambda entry: entry[0])
            best.append((each, variant, sample))
    return best
