"""Context parallelism: one sequence over several ranks, for attention that sees all of it.

Everything but attention works token by token, so only attention talks. Four ways, same result:

    ring       keys and values go round by send/recv         n - 1 hops, hidden behind attention on the last part
    alltoall   the same ring, a permuting all-to-all a hop   one collective a hop: every profiler and recorder sees it
    allgather  all keys and values are gathered first        one collective; memory for the whole sequence's keys
    ulysses    all-to-all: whole sequence, some heads        degree is bounded by the heads (arXiv:2309.14509)

With `ulysses=u` each of the first three runs over `n / u` places of `u` ranks that share the heads
(arXiv:2405.07719). `torch-allgather` and `torch-alltoall` are the ring that comes with torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh

from workloads.common.attention import WHOLE, Gradients, Partial, Tile, attend_tiles, attend_tiles_backward
from workloads.common.collectives import all_gather_single, reduce_scatter_single
from workloads.common.model import AttentionFn, full_attention

IMPLEMENTATIONS = ("ring", "alltoall", "allgather", "ulysses", "torch-allgather", "torch-alltoall")
SEQUENCE = 2  # dim of the tokens in (B, H, S, D), the order that kernels take; the model's is (B, S, H, D)


@dataclass(frozen=True)
class Layout:
    """Which positions of a sequence each rank of the axis holds, in the order in which it holds them.

    `places` parts of the sequence, each shared evenly by `ulysses` neighbours. With `zigzag` the sequence is cut
    in `2 * places` chunks and place `p` holds chunk `p` and, behind it, chunk `2 * places - 1 - p`: under a
    causal mask each place then has the same number of scores to compute.
    """

    places: int
    ulysses: int = 1
    zigzag: bool = False

    @property
    def degree(self) -> int:
        return self.places * self.ulysses

    def positions(self, length: int) -> Tensor:
        """`(degree, length / degree)` positions. Raises ValueError if the length does not divide."""
        zigzag = self.zigzag and self.places > 1
        chunks = self.places * (2 if zigzag else 1)
        if length % chunks or length % self.degree:
            raise ValueError(
                f"a sequence of {length} tokens does not divide by {max(chunks, self.degree)} context chunks"
            )
        order = torch.arange(length).view(chunks, -1)
        if zigzag:
            order = torch.cat((order[: self.places], order[self.places :].flip(0)), dim=1)
        return order.reshape(self.degree, -1)


def ring_tiles(rank: int, source: int, causal: bool, zigzag: bool, length: int) -> list[Tile]:
    """What `rank`'s queries see of `source`'s keys, both of `length` tokens.

    Under a causal mask contiguous ranks see all of earlier ranks' keys and none of later ones'. In zigzag order
    (head, tail) both of a rank's chunks lie behind an earlier rank's head and before its tail, and only the tail lies
    behind a later rank's chunks: half of the scores, whichever the rank.
    """
    if not causal or source == rank:
        return [Tile(WHOLE, WHOLE, causal)]
    if not zigzag:
        return [Tile(WHOLE, WHOLE, False)] if source < rank else []
    half = length // 2
    return [Tile(WHOLE, slice(0, half), False)] if source < rank else [Tile(slice(half, None), WHOLE, False)]


def gathered_tiles(positions: Tensor, causal: bool, zigzag: bool) -> list[Tile]:
    """What queries at `positions (S / n,)` see of all keys in order: those before their chunk, and in the chunk."""
    if not causal:
        return [Tile(WHOLE, WHOLE, False)]
    tiles, length = [], len(positions) // (2 if zigzag else 1)
    for first in range(0, len(positions), length):
        rows, start = slice(first, first + length), int(positions[first])
        tiles.append(Tile(rows, slice(start, start + length), True))
        if start:
            tiles.append(Tile(rows, slice(0, start), False))
    return tiles


class Exchange(Protocol):
    """How a place sees the other places' keys, forward and backward."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Partial: ...

    def backward(self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, state: Partial, causal: bool) -> Gradients: ...


Hop = Callable[[Tensor, dist.ProcessGroup], Callable[[], Tensor]]
"""Starts passing a tensor to the next rank; the result waits for the one that comes from the rank before."""


def send_to_next(tensor: Tensor, group: dist.ProcessGroup) -> Callable[[], Tensor]:
    """A hop by send/recv."""
    rank, size = group.rank(), group.size()
    coming = torch.empty_like(tensor)
    send = dist.P2POp(dist.isend, tensor, group=group, group_peer=(rank + 1) % size)
    receive = dist.P2POp(dist.irecv, coming, group=group, group_peer=(rank - 1) % size)
    works = dist.batch_isend_irecv([send, receive])

    def wait() -> Tensor:
        for work in works:
            work.wait()
        return coming

    return wait


def permute_to_next(tensor: Tensor, group: dist.ProcessGroup) -> Callable[[], Tensor]:
    """A hop by an all-to-all in which each rank has something for its neighbour only."""
    rank, size = group.rank(), group.size()
    coming = torch.empty_like(tensor)
    sent = [tensor.numel() if peer == (rank + 1) % size else 0 for peer in range(size)]
    received = [tensor.numel() if peer == (rank - 1) % size else 0 for peer in range(size)]
    work = dist.all_to_all_single(coming.view(-1), tensor.view(-1), received, sent, group=group, async_op=True)

    def wait() -> Tensor:
        work.wait()
        return coming

    return wait


@dataclass(frozen=True)
class RingExchange:
    """Keys and values go once round; in the backward their gradients travel one hop behind them and come home."""

    group: dist.ProcessGroup
    zigzag: bool
    hop: Hop

    def _tiles(self, hops: int, causal: bool, length: int) -> list[Tile]:
        rank = self.group.rank()
        return ring_tiles(rank, (rank - hops) % self.group.size(), causal, self.zigzag, length)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Partial:
        state, kv, last = Partial.empty(q), torch.stack((k, v)), self.group.size() - 1
        for hops in range(last + 1):
            coming = self.hop(kv, self.group) if hops < last else None
            attend_tiles(state, q, kv[0], kv[1], self._tiles(hops, causal, q.shape[SEQUENCE]))
            kv = coming() if coming else kv
        return state

    def backward(self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, state: Partial, causal: bool) -> Gradients:
        kv, last = torch.stack((k, v)), self.group.size() - 1
        grad_q = torch.zeros_like(state.out)
        earlier: Callable[[], Tensor] | None = None
        for hops in range(last + 1):
            coming = self.hop(kv, self.group) if hops < last else None
            grad_kv = torch.zeros_like(kv, dtype=state.out.dtype)
            total = Gradients(grad_q, grad_kv[0], grad_kv[1])
            attend_tiles_backward(total, grad, q, kv[0], kv[1], state, self._tiles(hops, causal, q.shape[SEQUENCE]))
            grad_kv = grad_kv + earlier() if earlier else grad_kv
            earlier = self.hop(grad_kv, self.group)
            kv = coming() if coming else kv
        assert earlier is not None
        home = earlier()
        return Gradients(grad_q, home[0], home[1])


@dataclass(frozen=True)
class GatherExchange:
    """Keys and values of all places at once; kept sharded between forward and backward, so gathered in both."""

    group: dist.ProcessGroup
    zigzag: bool

    def _order(self, local_length: int) -> Tensor:
        return Layout(self.group.size(), zigzag=self.zigzag).positions(local_length * self.group.size())

    def _gather(self, k: Tensor, v: Tensor, order: Tensor) -> Tensor:
        kv = torch.stack((k, v)).movedim(SEQUENCE + 1, 0).contiguous()
        parts = kv.new_empty((self.group.size() * kv.shape[0], *kv.shape[1:]))
        all_gather_single(parts, kv, group=self.group)
        return parts[order.flatten().argsort().to(parts.device)].movedim(0, SEQUENCE + 1)

    def _tiles(self, order: Tensor, causal: bool) -> list[Tile]:
        return gathered_tiles(order[self.group.rank()], causal, self.zigzag)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Partial:
        order = self._order(q.shape[SEQUENCE])
        state, kv = Partial.empty(q), self._gather(k, v, order)
        attend_tiles(state, q, kv[0], kv[1], self._tiles(order, causal))
        return state

    def backward(self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, state: Partial, causal: bool) -> Gradients:
        order = self._order(q.shape[SEQUENCE])
        kv = self._gather(k, v, order)
        grad_q, grad_kv = torch.zeros_like(state.out), torch.zeros_like(kv, dtype=state.out.dtype)
        total = Gradients(grad_q, grad_kv[0], grad_kv[1])
        attend_tiles_backward(total, grad, q, kv[0], kv[1], state, self._tiles(order, causal))
        parts = grad_kv.movedim(SEQUENCE + 1, 0)[order.flatten().to(kv.device)].contiguous()
        mine = parts.new_empty((q.shape[SEQUENCE], *parts.shape[1:]))
        reduce_scatter_single(mine, parts, group=self.group)
        grad_k, grad_v = mine.movedim(0, SEQUENCE + 1)
        return Gradients(grad_q, grad_k, grad_v)


class _ExchangedAttention(torch.autograd.Function):
    """Attention through an exchange: saves what each rank holds, never what it only saw."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, exchange: Exchange) -> Tensor:
        state = exchange.forward(q, k, v, causal)
        out = state.out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, state.lse)
        ctx.causal, ctx.exchange = causal, exchange
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        state = Partial(out.to(lse.dtype), lse)
        total = ctx.exchange.backward(grads[0], q, k, v, state, ctx.causal)
        return *(grad.to(x.dtype) for grad, x in zip(total, (q, k, v), strict=True)), None, None


def exchanged(exchange: Exchange) -> AttentionFn:
    """Attention over the places of `exchange`, on this rank's tokens."""
    apply: Any = _ExchangedAttention.apply

    def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        out: Tensor = apply(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal, exchange)
        return out.transpose(1, 2)

    return attention


def trade_dims(x: Tensor, split: int, concat: int, group: dist.ProcessGroup) -> Tensor:
    """All-to-all that shards dim `split` and makes dim `concat` whole; its backward is the reverse trade."""
    parts = torch.stack(x.chunk(group.size(), split))
    return torch.cat(all_to_all_single_autograd(parts, None, None, group).unbind(0), concat)


def ulysses(inner: AttentionFn, group: dist.ProcessGroup) -> AttentionFn:
    """`inner` on all tokens of the group and 1/u of the heads.

    Key heads fewer than the group are repeated first. Raises ValueError where the heads do not divide.
    """
    tokens, heads = 1, 2

    def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        size, kv_heads = group.size(), k.shape[heads]
        if q.shape[heads] % size or (kv_heads % size and size % kv_heads):
            raise ValueError(f"{q.shape[heads]} query and {kv_heads} key heads do not divide over {size} ulysses ranks")
        if kv_heads < size:
            k, v = (x.repeat_interleave(size // kv_heads, dim=heads) for x in (k, v))
        q, k, v = (trade_dims(x, heads, tokens, group) for x in (q, k, v))
        return trade_dims(inner(q, k, v, causal=causal), tokens, heads, group)

    return attention


def context_attention(mesh: DeviceMesh, implementation: str, layout: Layout) -> AttentionFn:
    """The model's attention over the one-axis `mesh`, whose ranks hold `layout`'s positions.

    Raises ValueError where the implementation cannot follow the layout.
    """
    whole_heads = implementation.startswith("torch") and layout.ulysses > 1
    if whole_heads or (implementation == "ulysses" and layout.places > 1):
        raise ValueError(f"{implementation} has no way over {layout.places} places of {layout.ulysses} ranks each")
    if implementation.startswith("torch"):
        from workloads.common.context_parallel_torch import torch_ring

        return torch_ring(mesh, layout.zigzag, implementation.removeprefix("torch-"))
    return _own_attention(mesh, implementation, layout)


def _own_attention(mesh: DeviceMesh, implementation: str, layout: Layout) -> AttentionFn:
    ranks = mesh.mesh.view(layout.places, layout.ulysses)
    place, neighbour = divmod(mesh.get_local_rank(), layout.ulysses)
    inner: AttentionFn = full_attention
    if layout.places > 1:
        inner = exchanged(_exchange(implementation, _subgroup(mesh, ranks[:, neighbour]), layout.zigzag))
    return inner if layout.ulysses == 1 else ulysses(inner, _subgroup(mesh, ranks[place]))


def _exchange(implementation: str, group: dist.ProcessGroup, zigzag: bool) -> Exchange:
    if implementation == "allgather":
        return GatherExchange(group, zigzag)
    return RingExchange(group, zigzag, permute_to_next if implementation == "alltoall" else send_to_next)


def _subgroup(mesh: DeviceMesh, ranks: Tensor) -> dist.ProcessGroup:
    """The mesh's own group where it has just these ranks, else a new one that only they know of."""
    if ranks.numel() == mesh.size():
        return mesh.get_group()
    return cast(dist.ProcessGroup, dist.new_group(ranks.tolist(), use_local_synchronization=True))
