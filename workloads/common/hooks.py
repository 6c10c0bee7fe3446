"""What DDP may send instead of whole fp32 gradients: communication hooks, one call per bucket.

A hook gets the bucket's flat local gradient and returns a future of the averaged one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

Bucket = Any  # dist.GradBucket, which has no type stub
HOOKS = ("none", "bf16", "powersgd", "topk")


def bf16(group: dist.ProcessGroup, bucket: Bucket) -> Future[Tensor]:
    """Half the bytes, and no state: the sum itself is rounded to eight bits of mantissa."""
    gradient: Tensor = bucket.buffer()
    work = dist.all_reduce(gradient.to(torch.bfloat16).div_(group.size()), group=group, async_op=True)
    assert work is not None
    summed: Future[Any] = work.get_future()
    return summed.then(lambda done: gradient.copy_(done.value()[0]))


@dataclass
class TopK:
    """Each rank sends its largest `share` of entries by size; what it holds back is added to its next gradient."""

    group: dist.ProcessGroup
    share: float = 0.01
    held_back: dict[int, Tensor] = field(default_factory=dict)  # by bucket: the error feedback

    def __call__(self, bucket: Bucket) -> Future[Tensor]:
        gradient: Tensor = bucket.buffer()
        wanted = gradient + self.held_back.get(bucket.index(), torch.zeros_like(gradient))
        indices = wanted.abs().topk(max(1, int(len(wanted) * self.share))).indices
        every_index, every_value = self._gather(indices), self._gather(wanted[indices])
        self.held_back[bucket.index()] = wanted.index_fill(0, indices, 0.0)
        gradient.zero_().index_add_(0, every_index, every_value).div_(self.group.size())
        done: Future[Tensor] = Future()
        done.set_result(gradient)
        return done

    def _gather(self, mine: Tensor) -> Tensor:
        every = [torch.empty_like(mine) for _ in range(self.group.size())]
        dist.all_gather(every, mine, group=self.group)
        return torch.cat(every)


def register(model: DistributedDataParallel, name: str, group: dist.ProcessGroup, rank: int, share: float) -> None:
    """Let `model` reduce by the hook `name`; `rank` is PowerSGD's, `share` top-k's."""
    # DDP compares the annotations of a hook with its own classes: a lambda has none.
    if name == "bf16":
        model.register_comm_hook(group, lambda state, bucket: bf16(state, bucket))
    elif name == "topk":
        model.register_comm_hook(TopK(group, share), lambda state, bucket: state(bucket))
    elif name == "powersgd":
        state = PowerSGDState(group, matrix_approximation_rank=rank, start_powerSGD_iter=2, min_compression_rate=1)
        model.register_comm_hook(state, powerSGD_hook)


def reduce_in_node_only(
    model: DistributedDataParallel, group: dist.ProcessGroup, node: dist.ProcessGroup, warm_up: int
) -> None:
    """After `warm_up` steps average gradients among the ranks of `node` alone (post-local SGD)."""
    state = PostLocalSGDState(group, node, warm_up)  # type: ignore[no-untyped-call]
    model.register_comm_hook(state, post_localSGD_hook)
