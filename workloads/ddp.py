"""DDP: every rank holds everything and trains on its own sequences; gradients are all-reduced during backward.

Per step: one all-reduce of each gradient bucket, 4 bytes a parameter (2 with the bf16 hook), overlapped with backward.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, installed or not

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workloads.common.loop import run
from workloads.common.model import Transformer
from workloads.common.strategy import Job, Strategy
from workloads.common.weights import materialize


class DDP(Strategy):
    axes = ("dp_replicate",)

    def parallelize(self, model: Transformer, job: Job) -> list[nn.Module]:
        self.tune_blocks(model, job)
        materialize([model], job.world.device, self.weights(job))
        return [DistributedDataParallel(model, process_group=job.mesh.view("dp_replicate").get_group())]

    def synchronize_gradients(self, part: nn.Module, last: bool, job: Job) -> None:
        assert isinstance(part, DistributedDataParallel)
        part.require_backward_grad_sync = last  # what DDP.no_sync() sets, without nesting the loop in a context


if __name__ == "__main__":
    run(DDP())
