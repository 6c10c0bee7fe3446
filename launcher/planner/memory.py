"""Memory per device, of the host at start, and of a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from launcher.planner.question import Question
from workloads.common.costs import Case

LOGIT_BYTES = 10  # bf16 as computed, float32 for the loss, float32 of its gradient
CHECKPOINT_BYTES = 4 + 8  # a parameter: float32 itself, and Adam's two moments
MTBF_HOURS = 6300.0  # of one node of 8: 419 interruptions of 2,048 nodes in 54 days (Llama 3, arXiv:2407.21783, §3.3.4)


def device_memory(question: Question, case: Case) -> dict[str, float]:
    """Bytes by state as in `Case.memory`; the activations include the logits where the vocabulary is known."""
    memory, names = case.memory(), case.names
    logits = names["predicts"] * names["T"] * question.model.vocab * LOGIT_BYTES / case.degree("tp")
    return {**memory, "activations": memory["activations"] + logits, "total": memory["total"] + logits}


def host_memory_at_start(question: Question) -> float:
    """Bytes on each host if every rank first builds the whole model in float32 instead of on the meta device."""
    return question.machine.per_node * question.model.sizes.total * 4


@dataclass(frozen=True)
class Offload:
    """Parameters, gradients and optimizer kept on the host: bytes left on a device and needed on each host, and the
    seconds a step of the copies over PCIe, of which the optimizer's own time on the host is no part."""

    memory: float
    host: float
    seconds: float


def offload(question: Question, micro_batches: int, memory: Mapping[str, float]) -> Offload | None:
    """FSDP2's CPUOffloadPolicy: a shard goes to the device in float32 whenever it is gathered, for forward and backward
    of every micro-batch, and its gradient comes back as often. None where nothing is gathered."""
    if not memory["gathered"]:
        return None
    kept = memory["parameters"] + memory["gradients"] + memory["optimizer"]
    copied = micro_batches * (2 * memory["parameters"] + memory["gradients"])
    seconds = copied / (question.machine.device.pcie * 1e9)
    return Offload(memory["total"] - kept, kept * question.machine.per_node, seconds)


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint costs, and how often to take one."""

    bytes: float
    write_s: float
    interval_s: float


def checkpoint(question: Question, write_gbps: float, mtbf_hours: float = MTBF_HOURS) -> Checkpoint:
    """`write_gbps` in GB/s to storage, `mtbf_hours` of one node; interval √(2·write·MTBF) (Young 1974, Daly 2006)."""
    size = question.model.sizes.total * CHECKPOINT_BYTES
    write = size / (write_gbps * 1e9)
    return Checkpoint(size, write, math.sqrt(2 * write * mtbf_hours * 3600 / question.machine.nodes))
