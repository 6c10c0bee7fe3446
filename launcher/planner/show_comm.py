"""Measured collectives for people: a table of sizes, then what was fitted."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.placement.result import NO_GAIN
from launcher.planner.comm import Fit, Measured, fastest
from launcher.planner.text import bytes_text, seconds_text

LADDER = (
    "below what the hardware should give? one step after the other:",
    "1. dlaunch topo: is the physical path what you paid for (NVLink, PCIe switch, NIC next to each device)?",
    "2. ddoctor nccl LOG of a run: did NCCL see it (rings, channels, GPUDirect, the NICs it uses)?",
    "3. this table at its largest size: what does the bare link carry?",
    "4. your sizes against the crossover: below it fewer, larger calls help (α), above it bandwidth alone does (β)",
)


def lines(found: Measured) -> list[str]:
    """The whole answer; algbw is bytes / time, busbw what each link carried (nccl-tests)."""
    refused = [f"no {op}: {why}" for op, why in found.refused.items()]
    return [*_samples(found), "", *map(_fit, found.fits), *refused, *_sweep(found), "", *LADDER]


def _sweep(found: Measured) -> Iterator[str]:
    """For each size what NCCL's own choice leaves."""
    for each, (algo, proto), other in fastest(found):
        gain = each.seconds / other.seconds
        verdict = f"{gain:.2f} times as fast as NCCL's choice" if gain >= NO_GAIN else "no gain over NCCL's choice"
        yield f"all_reduce {each.scope} {bytes_text(each.bytes)}: {algo} with {proto}, {verdict}"


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
