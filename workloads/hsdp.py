"""HSDP: parameters, gradients and optimizer state sharded inside a node, replicated between nodes.

Per step each block gathers its parameters inside the node (twice: forward and backward), reduce-scatters its gradients
inside the node, then all-reduces the shard it owns between nodes: the slow links carry 1/dp_shard of the gradients.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, installed or not

from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from workloads.common.loop import run
from workloads.common.model import Transformer
from workloads.common.precision import policy
from workloads.common.strategy import Job, Strategy


class HSDP(Strategy):
    def parallelize(self, model: Transformer, job: Job) -> list[nn.Module]:
        self.tune_blocks(model, job)
        mesh = job.mesh.sharded
        for block in model.layers.values():
            fully_shard(block, mesh=mesh, mp_policy=policy(job.options.dtype))
        fully_shard(model, mesh=mesh, mp_policy=policy(job.options.dtype))
        return [model]

    def synchronize_gradients(self, part: nn.Module, last: bool, job: Job) -> None:
        assert isinstance(part, FSDPModule)
        part.set_requires_gradient_sync(last)


if __name__ == "__main__":
    run(HSDP())
