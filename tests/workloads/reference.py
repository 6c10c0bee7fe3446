"""What every strategy is compared with: one process and a training loop of a dozen lines that shares none of ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tests.workloads.ranks import on_standing_ranks
from workloads.common.config import ModelConfig
from workloads.common.data import Batch, TrainingData, load_tokens
from workloads.common.loop import train
from workloads.common.mesh import parse_mesh
from workloads.common.model import Transformer, build_on_meta, unwrapped
from workloads.common.strategy import Job, Strategy
from workloads.common.weights import materialize, seeded

TINY = ("--steps", "10", "--batch", "8", "--seq", "32", "--layers", "2", "--data", "synthetic", "--timeout", "60")


@dataclass
class Run:
    """Losses of all steps, gradients of the first step before clipping, parameters after the last, by name."""

    losses: list[float] = field(default_factory=list)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    parameters: dict[str, Tensor] = field(default_factory=dict)


def single_process(
    config: ModelConfig,
    steps: int = 10,
    batch: int = 8,
    seq: int = 32,
    seed: int = 0,
    lr: float = 3e-3,
    prepare: Callable[[Transformer], None] = lambda model: None,
    after_backward: Callable[[nn.Module], object] = lambda model: None,
    dtype: torch.dtype = torch.float32,
) -> Run:
    """Train by hand what `TINY` asks for; `prepare` may set what is no parameter of the model."""
    torch.set_num_threads(1)
    model = build_on_meta(config).to(dtype)
    materialize([model], torch.device("cpu"), seeded(seed, config.layers))
    prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1)
    data = TrainingData(load_tokens("synthetic", seed), batch, seq, seed, index=0, degree=1)
    result = Run()
    for step in range(steps):
        loss = F.cross_entropy(model(data[step].inputs).flatten(0, 1), data[step].targets.flatten())
        torch.autograd.backward(loss)
        after_backward(model)
        result.losses.append(loss.item())
        if step == 0:
            result.gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    result.parameters = {name: p.detach().clone() for name, p in model.named_parameters()}
    return result


def whole(tensor: Tensor) -> Tensor:
    """The full value of a sharded tensor; a collective."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def recorded(strategy: Strategy, argv: Sequence[str]) -> Run:
    """Run `strategy` in this rank and keep what `Run` names."""
    result = Run()
    original: Callable[..., Tensor | None] = strategy.forward_backward
    seen: list[list[nn.Module]] = []

    def forward_backward(parts: list[nn.Module], batch: Batch, job: Job) -> Tensor | None:
        loss = original(parts, batch, job)
        if not seen:
            seen.append(parts)
            result.gradients = {name: whole(p.grad) for name, p in _named(parts) if p.grad is not None}
        return loss

    setattr(strategy, "forward_backward", forward_backward)  # noqa: B010  (a method replaced on one instance)
    finish = strategy.finish

    def keep(parts: list[nn.Module], job: Job) -> None:
        finish(parts, job)
        result.parameters = {name: whole(p) for name, p in _named(parts)}

    setattr(strategy, "finish", keep)  # noqa: B010
    result.losses = train(strategy, list(argv)).losses
    return result


def _named(parts: list[nn.Module]) -> list[tuple[str, nn.Parameter]]:
    return [(name.replace("_orig_mod.", ""), p) for part in parts for name, p in unwrapped(part).named_parameters()]


def distributed(kind: type[Strategy], mesh: str, *argv: str, **settings: Any) -> Run:
    """`recorded` on the ranks of `mesh`: what rank 0 saw, with parameters and gradients of all stages of a pipeline."""
    world_size = math.prod(degree for axis, degree in parse_mesh(mesh).items() if axis != "ep")
    return _merged(on_standing_ranks(_recorded_kind, world_size, kind, (*TINY, "--mesh", mesh, *argv), **settings))


def _merged(runs: Sequence[Run]) -> Run:
    merged = runs[0]
    for other in runs[1:]:
        merged.gradients = {**other.gradients, **merged.gradients}
        merged.parameters = {**other.parameters, **merged.parameters}
    return merged


def _recorded_kind(kind: type[Strategy], argv: Sequence[str]) -> Run:
    return recorded(kind(), argv)


def assert_same_training(
    actual: Run, expected: Run, loss: float = 1e-5, gradient: float = 1e-4, parameter: float = 1e-3
) -> None:
    """Losses within `loss`, gradients within `gradient` of the largest entry of each tensor.

    Parameters within `parameter`, which is more: Adam divides by the root of the squared gradient, so that it magnifies
    rounding where the gradient is nearly zero.
    """
    assert len(actual.losses) == len(expected.losses)
    losses = (torch.tensor(run.losses, dtype=torch.float64) for run in (actual, expected))
    torch.testing.assert_close(*losses, atol=loss, rtol=0)
    for kind, relative in (("gradients", gradient), ("parameters", parameter)):
        theirs, ours = getattr(expected, kind), getattr(actual, kind)
        assert set(ours) == set(theirs), kind
        for name, value in theirs.items():
            error = (ours[name] - value).abs().max() / value.abs().max()
            assert error <= relative, f"{kind} of {name}: relative error {error:.2e}"
