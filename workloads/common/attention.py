"""Attention over a part of the keys, with what is needed to merge parts and to go backward through them.

Softmax over a whole row is the merge of softmaxes over its parts, weighted by the parts' log-sum-exp (online softmax,
arXiv:1805.02867; the form for attention: arXiv:2112.05682). Context parallelism uses this: each rank sees the keys in
parts that arrive one after the other. Shapes: queries `(B, H, Sq, D)`, keys and values `(B, Hkv, Sk, D)` with
`Hkv` dividing `H` (grouped queries), log-sum-exp `(B, H, Sq)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

aten = torch.ops.aten


class Tile(NamedTuple):
    """One rectangle of the score matrix: these rows of the queries against these columns of the keys."""

    rows: slice
    columns: slice
    causal: bool


WHOLE = slice(None)


class Partial(NamedTuple):
    """Attention over some of the keys: `out (B, H, S, D)` and `lse (B, H, S)`, both in fp32 or wider."""

    out: Tensor
    lse: Tensor

    @classmethod
    def empty(cls, queries: Tensor) -> Partial:
        """The neutral element of :meth:`merge`: no key seen yet."""
        wide = torch.promote_types(queries.dtype, torch.float32)
        out = torch.zeros(queries.shape, dtype=wide, device=queries.device)
        return cls(out, torch.full(queries.shape[:-1], -math.inf, dtype=wide, device=queries.device))

    def merge(self, rows: slice, out: Tensor, lse: Tensor) -> None:
        """Add, in place, what `rows` of the queries saw in other keys."""
        old_out, old_lse = self.out[:, :, rows], self.lse[:, :, rows]
        new_lse = torch.logaddexp(old_lse, lse)
        old_weight, new_weight = (old_lse - new_lse).exp(), (lse - new_lse).exp()
        old_out.mul_(old_weight.unsqueeze(-1)).add_(out * new_weight.unsqueeze(-1))
        old_lse.copy_(new_lse)


class Gradients(NamedTuple):
    """Sums over tiles: for queries `(B, H, Sq, D)`, keys and values `(B, Hkv, Sk, D)`, in fp32 or wider."""

    queries: Tensor
    keys: Tensor
    values: Tensor


def attend_tiles(state: Partial, q: Tensor, k: Tensor, v: Tensor, tiles: Sequence[Tile]) -> None:
    """Merge `tiles` of the scores of `q` against `k` into `state`."""
    groups = q.shape[1] // k.shape[1]
    for rows, columns, causal in tiles:
        keys, values = (_expand_heads(x[:, :, columns], groups) for x in (k, v))
        out, lse = _kernel(q).forward(q[:, :, rows], keys, values, causal)
        state.merge(rows, out, lse)


def attend_tiles_backward(
    total: Gradients, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, state: Partial, tiles: Sequence[Tile]
) -> None:
    """Add to `total` the gradients through `tiles`; `state` is the *final* one, after all tiles."""
    groups = q.shape[1] // k.shape[1]
    for rows, columns, causal in tiles:
        keys, values = (_expand_heads(x[:, :, columns], groups) for x in (k, v))
        saved = (state.out[:, :, rows].to(q.dtype), state.lse[:, :, rows].contiguous())
        grads = _kernel(q).backward(grad[:, :, rows], q[:, :, rows], keys, values, *saved, causal)
        total.queries[:, :, rows] += grads[0]
        total.keys[:, :, columns] += _sum_heads(grads[1], groups)
        total.values[:, :, columns] += _sum_heads(grads[2], groups)


def _expand_heads(x: Tensor, groups: int) -> Tensor:
    # Not all fused kernels take fewer heads for keys than for queries; only the few heads travel between ranks.
    return x.repeat_interleave(groups, dim=1) if groups > 1 else x


def _sum_heads(grad: Tensor, groups: int) -> Tensor:
    batch, heads, length, width = grad.shape
    return grad.view(batch, heads // groups, groups, length, width).sum(2) if groups > 1 else grad


class Kernel(NamedTuple):
    """`forward(q, k, v, causal) -> out, lse` and `backward(grad, q, k, v, out, lse, causal) -> dq, dk, dv`."""

    forward: Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]
    backward: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor, Tensor]]


def _kernel(q: Tensor) -> Kernel:
    if q.device.type == "cpu":
        return CPU_FLASH
    if q.device.type == "cuda" and q.dtype in (torch.float16, torch.bfloat16):
        return CUDA_FLASH
    return PLAIN


def _cpu_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    return out, lse


def _cpu_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = aten._scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, out, lse, 0.0, causal)
    return dq, dk, dv


def _cuda_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    out, lse, *_ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
    return out, lse


def _cuda_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    no_dropout = torch.empty(0, dtype=torch.int64, device=q.device)
    lengths = (None, None, q.shape[2], k.shape[2])
    dq, dk, dv = aten._scaled_dot_product_flash_attention_backward(
        grad, q, k, v, out, lse, *lengths, 0.0, causal, no_dropout, no_dropout
    )
    return dq, dk, dv


def _scores(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    return scores


def _plain_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    scores = _scores(q, k, causal)
    lse = scores.logsumexp(-1)
    return (scores - lse.unsqueeze(-1)).exp() @ v, lse


def _plain_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The softmax' derivative, its row sums taken from `grad · out` (FlashAttention-2, arXiv:2307.08691, §2.3)."""
    weights = (_scores(q, k, causal) - lse.unsqueeze(-1)).exp()
    grad_scores = weights * (grad @ v.transpose(-2, -1) - (grad * out).sum(-1, keepdim=True))
    grad_scores = grad_scores / math.sqrt(q.shape[-1])
    return grad_scores @ k, grad_scores.transpose(-2, -1) @ q, weights.transpose(-2, -1) @ grad


CPU_FLASH = Kernel(_cpu_forward, _cpu_backward)
CUDA_FLASH = Kernel(_cuda_forward, _cuda_backward)
PLAIN = Kernel(_plain_forward, _plain_backward)
