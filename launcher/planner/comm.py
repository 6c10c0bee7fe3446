"""Measured collectives: bandwidths by the definitions of nccl-tests, and α and β fitted to them. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
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
    """All that a run of the benchmark told; `refused` says which operations the backend does not have."""

    samples: Sequence[Sample]
    refused: Mapping[str, str]

    @property
    def fits(self) -> list[Fit]:
        kinds: dict[tuple[str, str, int], list[Sample]] = {}
        for each in self.samples:
            if each.bytes:
                kinds.setdefault((each.scope, each.op, each.members), []).append(each)
        return [found for each in kinds.values() if (found := fit(each))]

    def to_json(self) -> dict[str, Any]:
        samples = [{**asdict(each), "algbw": each.algbw, "busbw": each.busbw} for each in self.samples]
        return {"samples": samples, "fits": [asdict(each) for each in self.fits], "refused": dict(self.refused)}


def read_lines(lines: Iterable[str]) -> Measured:
    """What comm_script prints; other lines are passed over."""
    samples, refused = [], {}
    for line in lines:
        if not line.startswith('{"scope"'):
            continue
        record = json.loads(line)
        if "refused" in record:
            refused[record["op"]] = record["refused"]
        else:
            samples.append(Sample(**record))
    return Measured(samples, refused)


def read_nccl_tests(text: str, where: str) -> Measured:
    """A table of all_reduce_perf, whose number of ranks follows from busbw / algbw. Raises InputError without rows."""
    rows = [row for row in parse_tables(text).rows if row.size and row.algbw]
    if not rows:
        raise InputError(
            "no rows of all_reduce_perf in it", where=where, help="all_reduce_perf -b 1K -e 1G -f 4 > FILE"
        )
    ratio = rows[-1].busbw / rows[-1].algbw
    if not 0.9 < ratio < 1.999:
        raise InputError(f"busbw is {ratio:.2f} × algbw, which is no all-reduce's", where=where)
    members = round(2 / (2 - ratio))
    return Measured([Sample("world", "all_reduce", members, row.size, row.time_us / 1e6) for row in rows], {})
