"""DDP: every rank holds everything and trains on its own sequences; gradients are all-reduced during backward.

One all-reduce per bucket of gradients, 4 bytes a parameter, starts as soon as its last gradient is there and hides
behind the rest of backward. --hook sends less: bf16 half; PowerSGD two thin matrices; top-k the largest entries, the
rest later. --local-sgd averages gradients inside a node only and parameters between nodes every N steps: between two
averages the nodes drift apart, each on gradients that are stale for the others, and the loss at equal steps is higher.
Choose DDP as long as 16 bytes a parameter and the activations fit a device.
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, installed or not

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

from workloads.common.hooks import HOOKS, reduce_in_node_only, register
from workloads.common.loop import run
from workloads.common.model import Block, Transformer, loss_of
from workloads.common.options import Options, flag
from workloads.common.precision import autocast
from workloads.common.strategy import Job, Strategy
from workloads.common.weights import materialize


@dataclass(frozen=True)
class DDPOptions(Options):
    bucket_mb: float = flag(25.0, "size of a gradient bucket")
    sweep_buckets: str = flag("", "time these bucket sizes first and take the fastest", metavar="MB,MB,…")
    bucket_view: bool = flag(True, "gradients are views into the buckets: no second copy")
    static_graph: bool = flag(False, "the same parameters are used in the same order in every step")
    find_unused: bool = flag(False, "look for parameters that got no gradient, at every step")
    hook: str = flag("none", "what is sent instead of fp32 gradients", choices=HOOKS)
    hook_rank: int = flag(4, "PowerSGD: rank of the approximation")
    hook_share: float = flag(0.05, "top-k: share of a bucket's entries that is sent")
    local_sgd: int = flag(0, "average parameters between nodes every N steps instead of gradients in each")
    local_sgd_after: int = flag(5, "steps of ordinary DDP before")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compile and self.bucket_mb < 1:
            raise ValueError("bucket_mb: the compiler's first bucket has 1 MB, and none after it may be smaller")


class DDP(Strategy):
    options = DDPOptions
    axes = ("dp_replicate",)

    def parallelize(self, model: Transformer, job: Job) -> list[nn.Module]:
        options = DDPOptions.of(job)
        self.tune_blocks(model, job)
        materialize([model], job.world.device, self.weights(job))
        size = _fastest(model, job) if options.sweep_buckets else options.bucket_mb
        wrapped = _wrap(model, job, size)
        group = wrapped.process_group
        if options.local_sgd:
            node, _ = dist.new_subgroups(job.world.local_size)  # type: ignore[no-untyped-call]
            reduce_in_node_only(wrapped, group, node, options.local_sgd_after)
        else:
            register(wrapped, options.hook, group, options.hook_rank, options.hook_share)
        return [wrapped]

    def tune_blocks(self, model: Transformer, job: Job) -> None:
        """Recomputation alone: DDP is compiled as a whole, since the compiler breaks its graph at the buckets."""
        for block in model.layers.values():
            assert isinstance(block, Block)
            block.checkpointing = job.options.recompute

    def optimizer(self, part: nn.Module, job: Job) -> torch.optim.Optimizer:
        inner, options = super().optimizer(part, job), DDPOptions.of(job)
        if not options.local_sgd:
            return inner
        from torch.distributed.optim import PostLocalSGDOptimizer  # its import compiles a dozen optimizers

        averager = PeriodicModelAverager(period=options.local_sgd, warmup_steps=options.local_sgd_after)
        return PostLocalSGDOptimizer(inner, averager)

    def loss_context(self, job: Job) -> AbstractContextManager[None]:
        return autocast(job.options.dtype, job.world.device)

    def synchronize_gradients(self, part: nn.Module, last: bool, job: Job) -> None:
        assert isinstance(part, DistributedDataParallel)
        part.require_backward_grad_sync = last  # what DDP.no_sync() sets, without nesting the loop in a context


def _wrap(model: Transformer, job: Job, bucket_mb: float) -> DistributedDataParallel:
    options = DDPOptions.of(job)
    wrapped = DistributedDataParallel(
        model,
        process_group=job.mesh.view("dp_replicate").get_group(),
        bucket_cap_mb=1e6 if options.hook == "powersgd" else bucket_mb,  # PowerSGD on gloo wants a single bucket
        gradient_as_bucket_view=options.bucket_view,
        static_graph=options.static_graph,
        find_unused_parameters=options.find_unused,
    )
    if options.compile:
        wrapped.compile()
    return wrapped


def _fastest(model: Transformer, job: Job, repeats: int = 3) -> float:
    """Time forward and backward with each size of --sweep-buckets; the slowest rank's time decides."""
    times: dict[float, float] = {}
    tokens = torch.zeros(1, job.options.seq, dtype=torch.int64, device=job.world.device)
    for size in map(float, DDPOptions.of(job).sweep_buckets.split(",")):
        wrapped = _wrap(model, job, size)
        for repeat in range(-2, repeats):  # the first two passes build and rebuild the buckets
            if repeat == 0:
                began = time.perf_counter()
            torch.autograd.backward(loss_of(wrapped(tokens), tokens))
        slowest = torch.tensor(time.perf_counter() - began, device=job.world.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        times[size] = float(slowest)
        model.zero_grad()
        if job.world.rank == 0:
            print(f"buckets of {size:g} MB: {times[size] / repeats * 1000:.1f} ms a pass", flush=True)
    return min(times, key=lambda size: times[size])


if __name__ == "__main__":
    run(DDP())
