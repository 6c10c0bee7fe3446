"""What a step cost and gave: progress records, throughput, floating-point operations, memory."""

from __future__ import annotations

import json
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from workloads.common.costs import Sizes
from workloads.common.flops import PEAK_FLOPS, family, flops_per_token
from workloads.common.strategy import Job


class Progress:
    """Appends one JSON object per step to the file that $DLAUNCH_PROGRESS names; without one it writes nothing."""

    def __init__(self) -> None:
        path = os.environ.get("DLAUNCH_PROGRESS")
        if path:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = Path(path).open("a", buffering=1) if path else None  # noqa: SIM115  (closed by __exit__)

    def write(self, **fields: Any) -> None:
        """Fields that are None are unknown and left out."""
        if self._file:
            known = {name: value for name, value in fields.items() if value is not None}
            self._file.write(json.dumps({"time": round(time.time(), 6), **known}) + "\n")

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()


def memory_bytes(device: torch.device) -> int:
    """Peak of what torch allocated on the device; on CPU the largest resident set of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass(frozen=True)
class Totals:
    """What all ranks agree on at the end of a backward pass."""

    loss: float
    grad_norm: float
    stop: bool


@dataclass(frozen=True)
class Throughput:
    """Turns the time of a step into rates."""

    steps: int
    tokens: int  # per step, over all ranks
    parameters: int
    flops: float  # per step, over all ranks
    device: torch.device
    devices: int

    @classmethod
    def of(cls, job: Job) -> Throughput:
        sizes, options = Sizes.of(job.config), job.options
        tokens = options.batch * options.seq
        flops = tokens * flops_per_token(sizes, options.seq)
        return cls(options.steps, tokens, int(sizes.total), flops, job.world.device, job.world.size)

    def line(self, step: int, totals: Totals, step_s: float) -> str:
        return (
            f"step {step}/{self.steps}  loss {totals.loss:.6f}  tokens/s {self.tokens / step_s:,.0f}  "
            f"grad norm {totals.grad_norm:.4f}"
        )

    def fields(self, step_s: float) -> dict[str, float | None]:
        """For the progress record: rates per device where the name says so; `mfu` is None where the peak is unknown."""
        flops_per_s = self.flops / self.devices / step_s
        return {
            "tokens": self.tokens,
            "tokens_per_s": round(self.tokens / step_s, 1),
            "tokens_per_s_device": round(self.tokens / step_s / self.devices, 1),
            "tflops_device": round(flops_per_s / 1e12, 6),
            "mfu": utilization(flops_per_s, self.device),
            "memory_bytes": memory_bytes(self.device),
        }


def utilization(flops_per_s: float, device: torch.device) -> float | None:
    """Share of the device's dense bf16 peak that one device reached; None where the peak is not known, as on CPU."""
    if device.type != "cuda":
        return None
    kind = family(torch.cuda.get_device_name(device))
    return flops_per_s / PEAK_FLOPS[kind] if kind else None
