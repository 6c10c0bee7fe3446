"""EP: the experts of each feed-forward are spread over the ranks of the ep axis; tokens travel to them and back.

`ep` adds no ranks: it divides the block of data ranks. Everything but the experts is sharded over all of them, each
expert over the block / ep ranks that hold it (its own FSDP group). Per step and layer four uneven all-to-alls (there
and back, forward and backward), each of top_k rows per token, and one of the counts, which the host must wait for.
Choose it when most parameters are experts: each rank computes only its own, on everybody's tokens.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, installed or not

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import Shard

from workloads.common.data import Batch
from workloads.common.loop import run
from workloads.common.model import Transformer
from workloads.common.moe import Routing, mixtures, rebalance, share_experts
from workloads.common.options import Options, flag
from workloads.common.precision import policy
from workloads.common.strategy import Job
from workloads.hsdp import HSDP


@dataclass(frozen=True)
class EPOptions(Options):
    balance: str = flag("auxiliary", "what keeps experts evenly busy", choices=("auxiliary", "bias", "none"))
    auxiliary_weight: float = flag(0.01, "of the balancing loss")
    bias_rate: float = flag(0.001, "by which a step moves the bias of an expert's choice")
    capacity: float = flag(0.0, "an expert takes this times its even share of a sequence's tokens; 0 takes all")
    chunks: int = flag(1, "of a rank's tokens: the next one travels while experts work on one")
    experts: int | None = flag(8, "experts per feed-forward")

    def routing(self) -> Routing:
        return Routing(self.balance, self.auxiliary_weight, self.bias_rate, self.capacity, self.chunks)


def parallelize_experts(model: nn.Module, job: Job) -> None:
    """Spread every mixture's experts over ep, and shard each expert over the ranks that hold it."""
    mesh, options = job.mesh, EPOptions.of(job)
    holders = mesh.expert["dp_replicate", "ep_shard"] if mesh.degree("dp_replicate") > 1 else mesh.expert["ep_shard"]
    micro_batches = options.accumulate if mesh.degree("pp") == 1 else 1  # a pipeline scales whole gradients itself
    for moe in mixtures(model):
        moe.router.routing, moe.router.token_group = options.routing(), mesh.tokens
        moe.router.loss_scale = 1 / (micro_batches * mesh.degree("tp"))
        share_experts(moe, mesh.expert["ep"])
        fully_shard(moe.experts, mesh=holders, mp_policy=policy(options.dtype), shard_placement_fn=lambda _: Shard(1))
        # An expert has seen the tokens of the whole block: its gradient is a mean over all of their ranks.
        # Unforced, torch scatters by an operation that only NCCL has; forced with nothing to scatter, it divides twice.
        assert isinstance(moe.experts, FSDPModule)
        moe.experts.set_gradient_divide_factor(mesh.size("dp_replicate", "dp_shard", "cp"))
        moe.experts.set_force_sum_reduction_for_comms(holders["ep_shard"].size() > 1)


def keep_balance(parts: list[nn.Module], job: Job) -> None:
    """Rebalance after a step; the first rank tells how evenly its stage's experts were used."""
    counts = torch.cat([rebalance(part) for part in parts])
    if job.world.rank == 0:
        load, dropped = counts[:, :-1], int(counts[:, -1].sum())
        busiest = float((load.max(1).values / load.mean(1)).max())
        print(f"busiest expert {busiest:.2f} × mean, dropped {dropped:,} of {int(load.sum()):,} choices", flush=True)


class EP(HSDP):
    options = EPOptions
    axes = ("dp_replicate", "dp_shard", "ep")

    def parallelize(self, model: Transformer, job: Job) -> list[nn.Module]:
        parallelize_experts(model, job)
        return super().parallelize(model, job)

    def forward_backward(self, parts: list[nn.Module], batch: Batch, job: Job) -> Tensor | None:
        loss = super().forward_backward(parts, batch, job)
        keep_balance(parts, job)
        return loss


if __name__ == "__main__":
    run(EP())
