"""ZeRO: what data parallel ranks hold in common is shared out, in three stages.

Stage 1 shares the optimizer state (ZeroRedundancyOptimizer over DDP): gradients are all-reduced as before, then each
owner broadcasts the parameters it has updated. That is 3 parameters' bytes where DDP moves 2; it is the price of this
implementation, not of the idea. Stage 2 shares gradients too: reduce-scatter, then one all-gather: 2, as DDP. Stage 3
shares the parameters and gathers them a second time, in backward: 3. Stages 2 and 3 are settings of FSDP2, which keeps
the parameters' shards in all of them and whole parameters from forward to backward (2) or only at work (3).
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, installed or not

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from workloads.common.loop import run
from workloads.common.model import Transformer
from workloads.common.options import Options, flag
from workloads.common.precision import autocast
from workloads.common.strategy import ADAMW, Job, Strategy
from workloads.common.weights import materialize
from workloads.fsdp import FSDPOptions, shard


@dataclass(frozen=True)
class ZeROOptions(Options):
    stage: int = flag(2, "what is shared out: 1 optimizer state, 2 and gradients, 3 and parameters", choices=(1, 2, 3))
    count: bool = flag(True, "print bytes and collectives as counted, beside the theory")


class ZeRO(Strategy):
    options = ZeROOptions
    axes = ("dp_shard",)

    def rows(self, job: Job) -> tuple[str, ...]:
        return (f"zero{_stage(job)}",)

    def parallelize(self, model: Transformer, job: Job) -> list[nn.Module]:
        self.tune_blocks(model, job)
        if _stage(job) == 1:
            materialize([model], job.world.device, self.weights(job))
            return [
                DistributedDataParallel(model, process_group=job.mesh.view("dp_shard").get_group(), bucket_cap_mb=25)
            ]
        shard(model, job.mesh.sharded, FSDPOptions(reshard=str(_stage(job) == 3).lower(), dtype=job.options.dtype))
        return [model]

    def optimizer(self, part: nn.Module, job: Job) -> torch.optim.Optimizer:
        if _stage(job) > 1:
            return super().optimizer(part, job)
        from torch.distributed.optim import ZeroRedundancyOptimizer  # its import compiles a dozen optimizers

        group = job.mesh.view("dp_shard").get_group()
        return ZeroRedundancyOptimizer(
            part.parameters(), torch.optim.AdamW, group, parameters_as_bucket_view=True, lr=job.options.lr, **ADAMW
        )

    def loss_context(self, job: Job) -> AbstractContextManager[None]:
        return autocast(job.options.dtype, job.world.device) if _stage(job) == 1 else nullcontext()

    def synchronize_gradients(self, part: nn.Module, last: bool, job: Job) -> None:
        if isinstance(part, DistributedDataParallel):
            part.require_backward_grad_sync = last
        elif isinstance(part, FSDPModule):
            part.set_requires_gradient_sync(last)


def _stage(job: Job) -> int:
    return ZeROOptions.of(job).stage


if __name__ == "__main__":
    run(ZeRO())
