"""Filling parameters, each rank its own shard alone: from a seed or from a file, with the same values on every mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from workloads.common.model import initial_std
from workloads.common.seeds import generator

Source = Callable[[str, torch.Size], Any]
"""`source(name, shape)` gives the whole parameter as what a tuple of slices indexes: a tensor, or a part of a file."""


def materialize(parts: Iterable[nn.Module], device: torch.device, source: Source) -> None:
    """Allocate and fill every part that is still on the meta device; buffers start at zero."""
    for part in parts:
        if any(parameter.is_meta for parameter in part.parameters()):
            part.to_empty(device=device)
            for name, parameter in part.named_parameters():
                fill(parameter, source(name, parameter.shape))
            for buffer in part.buffers():  # the routers' biases and counts
                buffer.zero_()


def seeded(seed: int, layers: int) -> Source:
    """Random initial values that depend on the seed and the parameter's name."""

    def draw(name: str, shape: torch.Size) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(shape)
        return torch.empty(shape).normal_(0.0, initial_std(name, layers), generator=generator("weights", seed, name))

    return draw


@torch.no_grad()
def fill(parameter: Tensor, whole: Any) -> None:
    """Copy this rank's shard of `whole` into `parameter`, without communication."""
    mine = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    if mine.numel():
        mine.copy_(whole[shard_of(parameter)])


def shard_of(parameter: Tensor) -> tuple[slice, ...]:
    """Which part of the whole parameter this rank holds."""
    if not isinstance(parameter, DTensor):
        return tuple(slice(0, size) for size in parameter.shape)
    shape, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    return tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))
