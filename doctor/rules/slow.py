"""Uniformly slow: where the time of a step goes, in the order in which people should look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from doctor.evidence import EvidenceSet
from doctor.evidence.kineto import TraceTimes
from doctor.rules import Rule, healthy
from doctor.rules.straggler import series_of
from doctor.text import plural
from launcher.common.finding import Evidence, Finding

INPUT_SHARE = 0.3
EXPOSED_SHARE = 0.2
BOUND_SHARE = 0.5  # of the step is exposed communication, more than there is computation: no overlap can hide it
IDLE_SHARE = 0.4
SMALL_KERNEL_S = 20e-6
COPY_SHARE = 0.2
BUBBLE_SHARE = 0.15
MIN_STEPS = 5


def find_slow(evidence: EvidenceSet) -> Iterator[Finding]:
    """Input first, then what the traces show."""
    yield from _input_bound(evidence)
    traces = evidence.of(TraceTimes)
    if traces:
        found = list(_bubble(traces)) or list(_communication(traces))
        found += [*_launch(traces), *_offload(traces)]
        yield from found
        if not found:
            yield healthy(f"{plural(len(traces), 'trace')}: the device computes and hides its communication")


def _input_bound(evidence: EvidenceSet) -> Iterator[Finding]:
    shares, where = [], []
    for one in series_of(evidence).values():
        pairs = [(data, step) for data, step in zip(one.data_s[1:], one.step_s[1:], strict=True) if data >= 0 < step]
        if len(pairs) >= MIN_STEPS:
            shares.append(sum(data for data, _ in pairs) / sum(step for _, step in pairs))
            where.append(one.where)
    if shares and min(shares) > INPUT_SHARE:
        yield Finding(
            "slow.input_bound",
            "warning",
            f"All ranks spend {min(shares):.0%} or more of their steps waiting for data.",
            "More loader workers, prefetching, faster storage, or preprocessing once ahead of training.",
            0.9,
            detail={"share": round(median(shares), 3)},
            evidence=[Evidence("progress", where[0], f"data_s is {shares[0]:.0%} of step_s")],
        )


def _communication(traces: Sequence[TraceTimes]) -> Iterator[Finding]:
    exposed = median([one.exposed_s / one.span_s for one in traces if one.span_s])
    if exposed < EXPOSED_SHARE:
        return
    bound = exposed > BOUND_SHARE and median([one.communication_s - one.computation_s for one in traces]) > 0
    worst = max(traces, key=lambda one: one.exposed_s)
    groups = sorted(worst.by_group, key=lambda name: worst.by_group[name][1], reverse=True)
    told = ", ".join(f"{name} {worst.by_group[name][1]:.3f} s" for name in groups[:4])
    yield Finding(
        "slow.comm_bound" if bound else "slow.exposed_comm",
        "warning",
        f"{exposed:.0%} of the time is communication that no computation hides, most of it in {told}"
        + (": there is more communication than computation to hide it." if bound else "."),
        "Move the axis with the most traffic inside a node, send fewer bytes (bf16, larger accumulation), or more "
        "tokens per device."
        if bound
        else "Overlap it: prefetch FSDP's all-gathers, larger DDP buckets, asynchronous tensor parallelism.",
        0.85,
        detail={"exposed_share": round(exposed, 3), "by_group_s": {name: worst.by_group[name][1] for name in groups}},
        evidence=[_evidence(one) for one in traces[:3]],
    )


def _bubble(traces: Sequence[TraceTimes]) -> Iterator[Finding]:
    """Waits for the neighbours of a pipeline that nothing hides."""
    share = median([one.neighbours_s / one.span_s for one in traces if one.span_s])
    if share > BUBBLE_SHARE:
        yield Finding(
            "slow.bubble",
            "warning",
            f"{share:.0%} of the time the stages of the pipeline wait for their neighbours.",
            "More micro-batches per step, an interleaved or zero-bubble schedule, stages of equal length (embedding and"
            " head count too): the bubble is (K−1)/(vM+K−1) of K stages, v chunks a stage and M micro-batches.",
            0.85,
            detail={"share": round(share, 3)},
            evidence=[_evidence(one) for one in traces[:3]],
        )


def _launch(traces: Sequence[TraceTimes]) -> Iterator[Finding]:
    device = [one for one in traces if one.kernels]
    if not device:
        return
    idle, small = median([one.idle_s / one.span_s for one in device]), median([one.median_kernel_s for one in device])
    if idle > IDLE_SHARE and small < SMALL_KERNEL_S:
        yield Finding(
            "slow.launch_bound",
            "warning",
            f"The device idles {idle:.0%} of the time between kernels of {1e6 * small:.0f} µs: the CPU cannot launch "
            "them faster.",
            "torch.compile or CUDA graphs, a larger batch per rank, fewer small operations.",
            0.8,
            detail={"idle_share": round(idle, 3), "median_kernel_us": round(1e6 * small, 1)},
            evidence=[_evidence(one) for one in device[:3]],
        )


def _offload(traces: Sequence[TraceTimes]) -> Iterator[Finding]:
    share = median([one.copies_s / one.span_s for one in traces if one.span_s])
    if share > COPY_SHARE:
        yield Finding(
            "slow.offload",
            "warning",
            f"{share:.0%} of the time goes into copies between host and device.",
            "Keep parameters or optimizer state on the device, or shard them over more devices; pin the memory.",
            0.8,
            detail={"share": round(share, 3)},
            evidence=[_evidence(one) for one in traces[:3]],
        )


def _evidence(one: TraceTimes) -> Evidence:
    return Evidence(
        "trace",
        one.where,
        f"span {one.span_s:.3f} s: computes {one.computation_s:.3f}, communicates {one.communication_s:.3f}, of it "
        f"exposed {one.exposed_s:.3f}, idles {one.idle_s:.3f}",
    )


RULES = (
    Rule(
        (
            "slow.input_bound",
            "slow.bubble",
            "slow.exposed_comm",
            "slow.comm_bound",
            "slow.launch_bound",
            "slow.offload",
        ),
        ("straggler",),
        find_slow,
    ),
)
