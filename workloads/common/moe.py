"""A mixture of experts: each token goes through the few experts that a router chooses for it.

Shapes: T tokens of width D, k choices per token, E experts in all and El = E / ep on this rank, N rows (one per token
and choice) in the order of their experts. Rows move between ranks in two uneven all-to-alls: there and back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from workloads.common.config import ModelConfig
from workloads.common.precision import wide


@dataclass(frozen=True)
class Routing:
    """How tokens find experts and what keeps the experts evenly busy.

    `auxiliary` adds `auxiliary_weight · E · Σ_e f_e P_e` to the loss, with f the share of choices and P the mean
    probability of expert e (Switch Transformer, arXiv:2101.03961, §2.2); `bias` instead moves a bias that only the
    choice sees by `bias_rate` against the load's sign after each step (arXiv:2408.15664).
    `capacity` > 0 lets an expert take at most `capacity · S · k / E` tokens of each sequence (of this rank's S
    tokens of it), first choices first, then in order (GShard, arXiv:2006.16668); what is over is dropped and counted.
    """

    balance: str = "none"  # none, auxiliary, bias
    auxiliary_weight: float = 0.01
    bias_rate: float = 0.001
    capacity: float = 0.0
    chunks: int = 1  # of tokens: the next one travels while experts work on one, and gathers sharded experts anew

    def limit(self, sequence: int, top_k: int, experts: int) -> int:
        return math.ceil(self.capacity * sequence * top_k / experts)


class Choice(NamedTuple):
    """`experts`, `weights` and `kept` (bool), each `(T, k)`."""

    experts: Tensor
    weights: Tensor
    kept: Tensor


class Router(nn.Module):
    """Scores every expert for every token; `load (E,)` and `dropped` count choices since :func:`rebalance`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.top_k = config.top_k
        self.routing = Routing()
        self.token_group: dist.ProcessGroup | None = None  # the ranks whose tokens share one load
        self.sequence_group: dist.ProcessGroup | None = None  # of these, ranks whose losses are summed, not averaged
        self.loss_scale = 1.0  # what one micro-batch's loss counts in the step's
        self.weight = nn.Parameter(torch.empty(config.experts, config.dim))
        self.register_buffer("bias", torch.zeros(config.experts))
        self.register_buffer("load", torch.zeros(config.experts), persistent=False)
        self.register_buffer("dropped", torch.zeros(()), persistent=False)
        self.bias: Tensor
        self.load: Tensor
        self.dropped: Tensor

    def forward(self, x: Tensor) -> tuple[Choice, Tensor]:
        """`x (B, S, D)` → the choice for its B · S tokens, and `x` with the auxiliary loss attached."""
        # In low precision near ties would fall differently from rank to rank.
        weight = cast(Tensor, cast(Any, _SumGradient.apply)(self.weight, self.sequence_group))
        probabilities = F.linear(wide(x.flatten(0, 1)), wide(weight)).softmax(-1)
        experts = (probabilities.detach() + self.bias).topk(self.top_k, dim=-1).indices
        weights = probabilities.gather(1, experts)
        weights = weights / weights.sum(-1, keepdim=True)
        load = torch.bincount(experts.flatten(), minlength=len(self.load)).to(self.load.dtype)
        kept = self._within_capacity(experts.view(*x.shape[:2], self.top_k)).reshape(experts.shape)
        if self.training and not _recomputing():
            self.load += load
            self.dropped += (~kept).sum()
        if self.routing.balance == "auxiliary":
            loss = self._auxiliary_loss(probabilities, load)
            x = cast(Tensor, cast(Any, _AttachLoss.apply)(x, loss, self.loss_scale))
        return Choice(experts, weights, kept), x

    def _auxiliary_loss(self, probabilities: Tensor, load: Tensor) -> Tensor:
        # The share is taken over all ranks: the mean over ranks of this loss is then that of one big batch.
        if self.token_group is not None:
            dist.all_reduce(load, group=self.token_group)
        share = load / load.sum()
        return self.routing.auxiliary_weight * len(load) * (share * probabilities.mean(0)).sum()

    def _within_capacity(self, experts: Tensor) -> Tensor:
        """Which choices `(B, S, k)` find room at their expert."""
        if not self.routing.capacity:
            return torch.ones_like(experts, dtype=torch.bool)
        queue = experts.transpose(1, 2).flatten(1)  # all first choices before all second ones
        place = F.one_hot(queue, len(self.load)).cumsum(1).gather(2, queue.unsqueeze(-1)).squeeze(-1)
        kept = place <= self.routing.limit(experts.shape[1], self.top_k, len(self.load))
        return kept.view(experts.shape[0], self.top_k, -1).transpose(1, 2)


def _recomputing() -> bool:
    """Whether this forward runs a second time, inside a backward, for activation checkpointing."""
    return torch._C._current_graph_task_id() != -1


class _AttachLoss(torch.autograd.Function):
    """Identity on `x` whose backward also starts the backward of a loss that leaves no other way, as on a stage."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(torch.full_like(loss, scale))
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        return grads[0], ctx.saved_tensors[0], None


class _SumGradient(torch.autograd.Function):
    """Identity on a parameter that the ranks of `group` hold alike, each for its own tokens of the same sequences."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.group = group
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad = grads[0].contiguous()
        if ctx.group is not None:
            dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Experts(nn.Module):
    """SwiGLU feed-forwards side by side: rows of expert e go through the e-th matrices."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(config.experts, config.dim, config.hidden))
        self.up = nn.Parameter(torch.empty(config.experts, config.dim, config.hidden))
        self.down = nn.Parameter(torch.empty(config.experts, config.hidden, config.dim))

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Rows `(N, D)`, sorted by expert, `counts (El,)` of each → `(N, D)`."""
        gate, up, down = (x.to_local() if isinstance(x, DTensor) else x for x in (self.gate, self.up, self.down))
        hidden = F.silu(grouped_matmul(rows, gate, counts)) * grouped_matmul(rows, up, counts)
        return grouped_matmul(hidden, down, counts)


def grouped_matmul(rows: Tensor, matrices: Tensor, counts: Tensor) -> Tensor:
    """`rows (N, D)`, of which the first `counts[0]` meet `matrices[0] (D, F)` and so on → `(N, F)`."""
    kernel = getattr(F, "grouped_mm", None)
    if kernel is not None and rows.dtype in ((torch.bfloat16, torch.float32) if rows.is_cpu else (torch.bfloat16,)):
        return cast(Tensor, kernel(rows, matrices, offs=counts.cumsum(0, dtype=torch.int32)))
    return grouped_matmul_plain(rows, matrices, counts)


def grouped_matmul_plain(rows: Tensor, matrices: Tensor, counts: Tensor) -> Tensor:
    """The same, one product after the other."""
    parts = torch.split(rows, counts.tolist())
    return torch.cat([part @ matrix for part, matrix in zip(parts, matrices.unbind(0), strict=True)])


class MoE(nn.Module):
    """Router and experts in place of a feed-forward: `(B, S, D)` → `(B, S, D)`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.router = Router(config)
        self.experts = Experts(config)
        self.group: dist.ProcessGroup | None = None  # the ep ranks, which share the experts

    def forward(self, x: Tensor) -> Tensor:
        choice, x = self.router(x)
        tokens = x.flatten(0, 1)
        chunks = self.router.routing.chunks
        pieces = zip(tokens.chunk(chunks), *(part.chunk(chunks) for part in choice), strict=True)
        # Every chunk's rows are on their way before the first chunk's experts start.
        on_the_way = [self._dispatch(piece, Choice(*chosen)) for piece, *chosen in pieces]
        return torch.cat([self._combine(*sent) for sent in on_the_way]).view_as(x)

    def _dispatch(self, tokens: Tensor, choice: Choice) -> tuple[Tensor, Choice, Tensor, Tensor, Shipment]:
        top_k, experts = choice.experts.shape[1], len(self.router.load)
        flat = choice.experts.flatten()
        order = flat.masked_fill(~choice.kept.flatten(), experts).argsort(stable=True)[: int(choice.kept.sum())]
        counts = torch.bincount(flat[order], minlength=experts)
        shipment = Shipment.plan(counts, self.group)
        return tokens, choice, order, shipment.there(tokens[order // top_k]), shipment

    def _combine(self, tokens: Tensor, choice: Choice, order: Tensor, arrived: Tensor, shipment: Shipment) -> Tensor:
        done = self.experts(shipment.by_expert(arrived), shipment.counts)
        rows = shipment.back(done)
        rows = rows * choice.weights.flatten()[order].unsqueeze(-1).to(rows.dtype)
        return torch.zeros_like(tokens).index_add(0, order // choice.experts.shape[1], rows.to(tokens.dtype))


@dataclass(frozen=True)
class Shipment:
    """One uneven exchange of rows between the ranks that share the experts, and its way back."""

    group: dist.ProcessGroup | None
    sent: list[int]  # rows to each rank
    received: list[int]  # rows from each rank
    counts: Tensor  # (El,) rows of each expert here
    order: Tensor  # arrived rows are sorted by rank, then expert; this sorts them by expert

    @classmethod
    def plan(cls, counts: Tensor, group: dist.ProcessGroup | None) -> Shipment:
        """`counts (E,)`: this rank's rows for each expert. Exchanges the counts."""
        if group is None:
            return cls(None, [], [], counts, torch.empty(0, dtype=torch.int64))
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=group)
        outgoing, arriving = counts.view(group.size(), -1), arriving.view(group.size(), -1)
        expert = torch.arange(arriving.shape[1], device=counts.device).repeat(group.size())
        order = expert.repeat_interleave(arriving.flatten()).argsort(stable=True)
        return cls(group, outgoing.sum(1).tolist(), arriving.sum(1).tolist(), arriving.sum(0), order)

    def there(self, rows: Tensor) -> Tensor:
        """Start sending rows, sorted by expert, to the experts' ranks; whoever uses the result waits for it."""
        return rows if self.group is None else all_to_all_single_autograd(rows, self.received, self.sent, self.group)

    def by_expert(self, arrived: Tensor) -> Tensor:
        return arrived if self.group is None else arrived[self.order]

    def back(self, rows: Tensor) -> Tensor:
        """Rows sorted by expert return to the ranks that they came from, in the order in which they left."""
        if self.group is None:
            return rows
        unsorted = torch.empty_like(rows).index_copy(0, self.order, rows)
        return all_to_all_single_autograd(unsorted, self.sent, self.received, self.group)


def mixtures(part: nn.Module) -> Iterator[MoE]:
    """Every mixture of experts in a part of the model."""
    return (module for module in part.modules() if isinstance(module, MoE))


def share_experts(moe: MoE, mesh: DeviceMesh) -> None:
    """Leave each rank of the one-axis `mesh` E / ep experts. Raises ValueError if they do not divide."""
    count = moe.experts.gate.shape[0]
    if count % mesh.size():
        raise ValueError(f"{count} experts do not divide over ep={mesh.size()}")
    moe.group = mesh.get_group()
    for name, parameter in list(moe.experts.named_parameters()):
        shard = distribute_tensor(parameter, mesh, [Shard(0)], src_data_rank=None)
        setattr(moe.experts, name, nn.Parameter(shard))


@torch.no_grad()
def rebalance(part: nn.Module) -> Tensor:
    """After a step: move the routers' biases if asked, and start counting anew.

    Returns `(layers, E + 1)`: each layer's load and, last, its dropped choices, summed by one all-reduce over the
    ranks that share a load.
    """
    routers = [moe.router for moe in mixtures(part)]
    counts = torch.stack([torch.cat((router.load, router.dropped.view(1))) for router in routers])
    if routers[0].token_group is not None:
        dist.all_reduce(counts, group=routers[0].token_group)
    for router, count in zip(routers, counts, strict=True):
        if router.routing.balance == "bias":
            load = count[:-1]
            router.bias += router.routing.bias_rate * (load.mean() - load).sign()
        router.load.zero_()
        router.dropped.zero_()
    return counts
