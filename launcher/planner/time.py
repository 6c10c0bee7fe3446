"""Time of a step: compute with the pipeline's waiting, and communication with and without overlap."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.placement.collectives import rounds
from launcher.planner.question import Question
from workloads.common.costs import Case, Traffic
from workloads.common.flops import flops_per_token
from workloads.common.pipeline_theory import bubble_formula

RECOMPUTE = 4 / 3  # checkpointing runs each forward twice, and a backward costs two forwards
BACKWARD = 2 / 3  # of the compute
DATA = frozenset({"dp_replicate", "dp_shard", "ep_shard"})


def collective_seconds(traffic: Traffic, gbps: float, latency: float = 0.0) -> float:
    """All calls of one exchange in a step, by the cost model of DESIGN §6.

    Ring: 2(n−1)·α + 2(n−1)/n·bytes·β for an all-reduce, half of each for its two halves; an all-reduce may take a tree
    instead, 2·log₂n·α + 2·bytes·β.
    """
    ring = message_steps(traffic) * latency + traffic.sent / (gbps * 1e9)
    if traffic.exchange.collective != "all_reduce":
        return ring
    return min(ring, traffic.calls * 2 * math.log2(traffic.members) * latency + traffic.logical / (gbps * 1e9))


def message_steps(traffic: Traffic) -> float:
    """How many messages a rank sends one after the other in a step."""
    return traffic.calls * rounds(traffic.exchange.collective, traffic.members)


def strides(case: Case) -> dict[str, int]:
    """Distance of neighbouring ranks of each axis' groups: axes as in launcher.spec.AXES, experts consecutive.

    FSDP shards over dp_shard × cp at once.
    """
    tp, block = case.degree("tp"), case.degree("dp_shard", "cp", "tp")
    return {
        "pp": block * case.degree("dp_replicate"),
        "dp_replicate": block,
        "dp_shard": tp,
        "cp": tp,
        "tp": 1,
        "ep": 1,
        "ep_shard": case.degree("ep"),
        "tokens": 1,
    }


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step. `compute` includes the bubble; `axes` is communication by axis, nothing hidden."""

    compute: float
    axes: Mapping[str, float]
    hidden: float  # the most of the communication that compute can hide
    bubble: float
    ideal: float  # compute without bubble, recomputation or uneven stages
    messages: float  # that a rank sends one after the other, and whose latency the times leave out

    @property
    def communication(self) -> float:
        return sum(self.axes.values())

    @property
    def step(self) -> float:
        """Nothing overlaps."""
        return self.compute + self.communication

    @property
    def overlapped(self) -> float:
        """All that can be hidden is."""
        return self.step - self.hidden

    @property
    def efficiency(self) -> tuple[float, float]:
        return self.ideal / self.step, self.ideal / self.overlapped


def step_time(question: Question, case: Case, traffic: Sequence[Traffic]) -> StepTime:
    """Seconds of one step of `case`, whose traffic has been evaluated."""
    stages, layers = case.degree("pp"), question.model.sizes.layers
    bubble = bubble_formula(stages, case.virtual_stages, case.micro_batches)
    ideal = ideal_compute(question)
    longest = math.ceil(layers / stages) * stages / layers
    busy = ideal * longest * (RECOMPUTE if case.checkpointing else 1)
    machine, stride = question.machine, strides(case)
    axes: dict[str, float] = {}
    behind: dict[float, float] = {}
    for part in traffic:
        gbps = machine.gbps(part.axis, stride[part.axis], part.members)
        seconds = collective_seconds(part, gbps, machine.alpha(stride[part.axis], part.members))
        axes[part.axis] = axes.get(part.axis, 0.0) + seconds
        share = hiding_share(question, case, part)
        last = seconds / max(1.0, part.calls)  # the first gather and the last bucket have nothing to hide behind
        behind[share] = behind.get(share, 0.0) + seconds - last
    hidden = min(busy, sum(min(seconds, share * busy) for share, seconds in behind.items()))
    messages = 0.0 if machine.measured else sum(map(message_steps, traffic))
    return StepTime(busy / (1 - bubble), axes, hidden, bubble, ideal, messages)


def hiding_share(question: Question, case: Case, part: Traffic) -> float:
    """Behind which share of the compute an exchange can hide.

    What tp and ep exchange is needed at once by the next product; keys and values travel while attention computes;
    gradients are reduced during the last micro-batch's backward; parameters and stages' activations are fetched ahead.
    """
    if part.axis == "cp":
        sizes = question.model.sizes
        return 1 - 6 * sizes.active / flops_per_token(sizes, question.seq)
    if part.axis in DATA:
        return BACKWARD / case.micro_batches if part.exchange.state == "gradients" else 1.0
    return 1.0 if part.axis == "pp" else 0.0


def ideal_compute(question: Question) -> float:
    """Seconds of the model's operations alone, spread evenly over all devices."""
    flops = question.tokens * flops_per_token(question.model.sizes, question.seq)
    return flops / question.machine.world / question.machine.device.flops
