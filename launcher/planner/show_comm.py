"""Measured collectives for people: a table of sizes, then what was fitted."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.planner.comm import Fit, Measured
from launcher.planner.text import bytes_text, seconds_text


def lines(found: Measured) -> list[str]:
    """The whole answer; algbw is bytes / time, busbw what each link carried (nccl-tests)."""
    return [*_samples(found), "", *map(_fit, found.fits), *(f"no {op}: {why}" for op, why in found.refused.items())]


def _samples(found: Measured) -> Iterator[str]:
    yield f"{'scope':<9}{'operation':<16}{'ranks':>5}{'size':>10}{'time':>11}{'algbw GB/s':>12}{'busbw GB/s':>12}"
    for each in sorted(found.samples, key=lambda sample: (sample.scope, sample.op, sample.bytes)):
        rates = f"{each.algbw:>12.3g}{each.busbw:>12.3g}" if each.bytes else ""
        yield (
            f"{each.scope:<9}{each.op:<16}{each.members:>5}{bytes_text(each.bytes):>10}"
            f"{seconds_text(each.seconds):>11}{rates}"
        )


def _fit(each: Fit) -> str:
    return (
        f"{each.op} {each.scope}: α {each.alpha * 1e6:.3g} µs a message, {each.gbps:.3g} GB/s (±{each.residual:.0%}); "
        f"below {bytes_text(each.crossover)} latency takes most of the time"
    )
