from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from workloads.common.attention import (
    CPU_FLASH,
    PLAIN,
    WHOLE,
    Gradients,
    Kernel,
    Partial,
    Tile,
    attend_tiles,
    attend_tiles_backward,
)

FULL = [Tile(WHOLE, WHOLE, False)]
CAUSAL = [Tile(WHOLE, WHOLE, True)]
QUARTERS = [slice(0, 4), slice(4, 8), slice(8, 12), slice(12, 16)]
FULL_IN_PARTS = [Tile(WHOLE, part, False) for part in reversed(QUARTERS)]
CAUSAL_IN_PARTS = [
    *(Tile(part, part, True) for part in QUARTERS),
    *(Tile(slice(part.start, None), earlier, False) for earlier, part in pairwise(QUARTERS)),
]


def make_qkv(
    heads: int = 4, kv_heads: int = 4, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shapes = [(2, heads, 16, 8), (2, kv_heads, 16, 8), (2, kv_heads, 16, 8), (2, heads, 16, 8)]
    q, k, v, grad = (torch.randn(shape, dtype=dtype) for shape in shapes)
    return q, k, v, grad


def expected(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, causal: bool) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=True)
    out.backward(grad)
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def run_tiles(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, tiles: list[Tile]) -> list[Tensor]:
    state = Partial.empty(q)
    attend_tiles(state, q, k, v, tiles)
    total = Gradients(*(torch.zeros_like(x) for x in (q, k, v)))
    attend_tiles_backward(total, grad, q, k, v, state, tiles)
    return [state.out, *total]


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize(
    ("tiles", "causal"), [(FULL, False), (CAUSAL, True), (FULL_IN_PARTS, False), (CAUSAL_IN_PARTS, True)]
)
def test_tiles_in_any_order_give_the_whole(tiles: list[Tile], causal: bool, kv_heads: int) -> None:
    inputs = make_qkv(kv_heads=kv_heads)
    for got, want in zip(run_tiles(*inputs, tiles), expected(*inputs, causal), strict=True):
        torch.testing.assert_close(got, want, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", [PLAIN, CPU_FLASH])
def test_kernels_agree_with_autograd(kernel: Kernel, causal: bool) -> None:
    q, k, v, grad = make_qkv()
    out, lse = kernel.forward(q, k, v, causal)
    got = [out, *kernel.backward(grad, q, k, v, out, lse, causal)]
    for mine, want in zip(got, expected(q, k, v, grad, causal), strict=True):
        torch.testing.assert_close(mine, want, atol=1e-12, rtol=1e-10)


def test_merging_nothing_leaves_the_other_part() -> None:
    q, k, v, _ = make_qkv()
    state = Partial.empty(q)
    out, lse = CPU_FLASH.forward(q, k, v, True)
    state.merge(WHOLE, out, lse)
    torch.testing.assert_close(state.out, out)
    torch.testing.assert_close(state.lse, lse)


def test_partial_accumulates_low_precision_wide() -> None:
    q, k, v, _ = make_qkv(dtype=torch.bfloat16)
    state = Partial.empty(q)
    attend_tiles(state, q, k, v, FULL_IN_PARTS)
    assert state.out.dtype == state.lse.dtype == torch.float32
    want = F.scaled_dot_product_attention(q.float(), k.float(), v.float())
    torch.testing.assert_close(state.out, want, atol=2e-2, rtol=2e-2)


def test_large_scores_do_not_overflow() -> None:
    q, k, v, grad = make_qkv(dtype=torch.float32)
    inputs = (q * 300, k * 300, v, grad)
    for got, want in zip(run_tiles(*inputs, CAUSAL_IN_PARTS), expected(*inputs, True), strict=True):
        assert got.isfinite().all()
        torch.testing.assert_close(got, want, atol=1e-2, rtol=1e-3)
