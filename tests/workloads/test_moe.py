"""The mixture of experts in one process: against a loop over tokens, and its balancing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from workloads.common.config import ModelConfig
from workloads.common.moe import MoE, Routing, grouped_matmul, grouped_matmul_plain, rebalance

CONFIG = ModelConfig(dim=16, hidden=24, experts=4, top_k=2)


def make_moe(**routing: float | str) -> MoE:
    torch.manual_seed(0)
    moe = MoE(CONFIG)
    for parameter in moe.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    moe.router.routing = Routing(**routing)  # type: ignore[arg-type]
    return moe


def token_by_token(moe: MoE, x: Tensor) -> Tensor:
    """The definition: each token through its two best experts, weighted by their renormalised probabilities."""
    rows = []
    for token in x.flatten(0, 1):
        best = F.linear(token, moe.router.weight).softmax(-1).topk(2)
        weights = best.values / best.values.sum()
        row = torch.zeros_like(token)
        for weight, expert in zip(weights, best.indices.tolist(), strict=True):
            gate, up, down = moe.experts.gate[expert], moe.experts.up[expert], moe.experts.down[expert]
            row = row + weight * ((F.silu(token @ gate) * (token @ up)) @ down)
        rows.append(row)
    return torch.stack(rows).view_as(x)


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_forward_and_backward_are_the_definition(chunks: int) -> None:
    moe = make_moe(chunks=chunks)
    x, grad = torch.randn(2, 9, 16, requires_grad=True), torch.randn(2, 9, 16)
    inputs = [x, *moe.parameters()]
    got, want = moe(x), token_by_token(moe, x)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    ours, theirs = (torch.autograd.grad(out, inputs, grad) for out in (got, want))
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("counts", [[3, 0, 2, 4], [0, 0, 0, 0], [9, 0, 0, 0]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_kernel_and_plain_products_agree(counts: list[int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    sizes = torch.tensor(counts)
    rows = torch.randn(sum(counts), 16, dtype=dtype, requires_grad=True)
    matrices = torch.randn(4, 16, 8, dtype=dtype, requires_grad=True)
    results = []
    for product in (grouped_matmul, grouped_matmul_plain):
        out = product(rows, matrices, sizes)
        results.append([out, *torch.autograd.grad(out, [rows, matrices], torch.ones(out.shape, dtype=dtype))])
    for kernel, plain in zip(*results, strict=True):
        torch.testing.assert_close(kernel, plain, atol=1e-5, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5)


def test_auxiliary_loss_has_the_gradient_of_its_formula() -> None:
    moe = make_moe(balance="auxiliary", auxiliary_weight=0.5)
    x = torch.randn(2, 8, 16)
    probabilities = F.linear(x.flatten(0, 1), moe.router.weight).softmax(-1)
    share = torch.bincount(probabilities.topk(2).indices.flatten(), minlength=4) / 32
    (want,) = torch.autograd.grad(0.5 * 4 * (share * probabilities.mean(0)).sum(), moe.router.weight)
    with_it, without = moe(x).sum(), token_by_token(moe, x).sum()
    (ours,) = torch.autograd.grad(with_it, moe.router.weight)
    (plain,) = torch.autograd.grad(without, moe.router.weight)
    torch.testing.assert_close(ours - plain, want, atol=1e-5, rtol=1e-3)


def test_loss_scale_scales_the_auxiliary_gradient() -> None:
    moe = make_moe(balance="auxiliary", auxiliary_weight=1.0)
    x = torch.randn(2, 8, 16)
    (plain,) = torch.autograd.grad(token_by_token(moe, x).sum(), moe.router.weight)
    parts = []
    for scale in (1.0, 0.25):
        moe.router.loss_scale = scale
        parts.append(torch.autograd.grad(moe(x).sum(), moe.router.weight)[0] - plain)
    torch.testing.assert_close(parts[0] / 4, parts[1], atol=1e-5, rtol=1e-3)


def test_capacity_drops_and_counts_what_is_over() -> None:
    moe = make_moe(capacity=1.0)
    with torch.no_grad():  # every token wants experts 0 and 1
        moe.router.weight.zero_()
        moe.router.bias.copy_(torch.tensor([2.0, 1.0, 0.0, 0.0]))
    x = torch.randn(2, 8, 16)
    out = moe(x)
    assert moe.router.routing.limit(8, 2, 4) == 4
    assert moe.router.dropped == 2 * (8 - 4) * 2  # per sequence four of eight tokens, at two experts
    assert out[:, :4].abs().sum(-1).all()
    assert not out[:, 4:].any()


def test_first_choices_go_before_second_ones() -> None:
    moe = make_moe(capacity=0.5)  # one place of each expert for four tokens
    experts = torch.tensor([[[0, 1], [1, 0], [2, 3], [1, 2]]])
    kept = moe.router._within_capacity(experts)
    assert kept.tolist() == [[[True, False], [True, False], [True, True], [False, False]]]


def test_bias_moves_against_the_load_and_counting_starts_anew() -> None:
    moe = make_moe(balance="bias", bias_rate=0.1)
    moe.router.load.copy_(torch.tensor([5.0, 1.0, 3.0, 3.0]))
    counts = rebalance(moe)
    assert counts.tolist() == [[5, 1, 3, 3, 0]]
    torch.testing.assert_close(moe.router.bias, torch.tensor([-0.1, 0.1, 0.0, 0.0]))
    assert not moe.router.load.any()


def test_bias_changes_the_choice_but_not_the_weights() -> None:
    moe = make_moe()
    x = torch.randn(1, 4, 16)
    with torch.no_grad():
        moe.router.bias[3] = 10
    choice, _ = moe.router(x)
    probabilities = F.linear(x.flatten(0, 1), moe.router.weight).softmax(-1)
    chosen = probabilities.gather(1, choice.experts)
    assert (choice.experts == 3).any(1).all()
    torch.testing.assert_close(choice.weights, chosen / chosen.sum(-1, keepdim=True))


def test_evaluation_and_recomputation_do_not_count() -> None:
    moe = make_moe()
    x = torch.randn(1, 4, 16, requires_grad=True)
    torch.utils.checkpoint.checkpoint(moe, x, use_reentrant=False).sum().backward()
    assert moe.router.load.sum() == 8
    moe.eval()
    moe(x)
    assert moe.router.load.sum() == 8
