"""FSDP: parameters, gradients and optimizer state sharded over all ranks (ZeRO-3, by FSDP2's fully_shard).

A wrapped module gathers its parameters before its forward and again before its backward, and reduce-scatters its
gradients after. --wrap says what is wrapped: block gathers while the block before computes (the usual choice), model
gathers everything at once (fewest calls, most memory), linear every matrix on its own (least memory, most calls).
Choose FSDP when one replica does not fit a device; its traffic is 3 parameters' bytes where DDP moves 2.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, installed or not

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    OffloadPolicy,
    fully_shard,
)

from workloads.common.loop import run
from workloads.common.model import Transformer
from workloads.common.options import Options, flag
from workloads.common.precision import policy
from workloads.common.strategy import Job, Strategy


@dataclass(frozen=True)
class FSDPOptions(Options):
    wrap: str = flag("block", "what gathers its parameters at once", choices=("block", "model", "linear"))
    reshard: str = flag(
        "true", "after forward: true, false (keep them whole, ZeRO-2), or a number of ranks to shard over"
    )
    keep_gathered: bool = flag(False, "with --accumulate: keep parameters whole until the last micro-batch's backward")
    prefetch: int = flag(0, "blocks to gather ahead explicitly; 0 leaves it to FSDP")
    offload: bool = flag(False, "keep shards and optimizer in host memory")

    def reshard_after_forward(self) -> bool | int:
        """Raises ValueError if --reshard is neither a truth value nor a number."""
        words: dict[str, bool | int] = {"true": True, "false": False}
        return words[self.reshard] if self.reshard in words else int(self.reshard)


def shard(model: Transformer, mesh: DeviceMesh, options: FSDPOptions) -> None:
    """Apply FSDP2 to `model` over `mesh` (one axis, or replicate × shard), innermost modules first."""
    offload = CPUOffloadPolicy(pin_memory=torch.cuda.is_available()) if options.offload else OffloadPolicy()
    reshard = options.reshard_after_forward()
    wrapped = list(_wrapped(model, options.wrap))
    for module in wrapped:
        fully_shard(
            module, mesh=mesh, mp_policy=policy(options.dtype), offload_policy=offload, reshard_after_forward=reshard
        )
    # The root's own parameters are needed last in forward and first in backward: resharding between would be waste.
    root = reshard if options.wrap == "model" else False
    fully_shard(model, mesh=mesh, mp_policy=policy(options.dtype), offload_policy=offload, reshard_after_forward=root)
    if options.prefetch:
        _prefetch(wrapped, options.prefetch)


def _wrapped(model: Transformer, wrap: str) -> Iterator[nn.Module]:
    if wrap == "linear":
        yield from (module for module in model.layers.modules() if isinstance(module, nn.Linear))
    if wrap in ("block", "linear"):
        yield from model.layers.values()


def _prefetch(modules: list[nn.Module], ahead: int) -> None:
    """Gather the next `ahead` modules while one computes, in the order of forward and of backward."""
    wrapped: list[FSDPModule] = [module for module in modules if isinstance(module, FSDPModule)]
    for index, module in enumerate(wrapped):
        module.set_modules_to_forward_prefetch(wrapped[index + 1 : index + 1 + ahead])
        module.set_modules_to_backward_prefetch(wrapped[max(0, index - ahead) : index][::-1])


class FSDP(Strategy):
    options = FSDPOptions
    axes: Sequence[str] = ("dp_shard",)

    def parallelize(self, model: Transformer, job: Job) -> list[nn.Module]:
        self.tune_blocks(model, job)
        shard(model, job.mesh.sharded, FSDPOptions.of(job))
        return [model]

    def synchronize_gradients(self, part: nn.Module, last: bool, job: Job) -> None:
        assert isinstance(part, FSDPModule)
        part.set_requires_gradient_sync(last)
        if FSDPOptions.of(job).keep_gathered:
            part.set_reshard_after_backward(last)


if __name__ == "__main__":
    run(FSDP())
