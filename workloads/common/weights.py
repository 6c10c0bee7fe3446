"""Filling parameters: from a seed, independent of how the model is sharded."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from workloads.common.model import initial_std
from workloads.common.seeds import generator


def materialize(parts: Iterable[nn.Module], device: torch.device, seed: int, layers: int) -> None:
    """Allocate every parameter that is still on the meta device, its own shard alone, and draw its initial values."""
    for part in parts:
        if any(parameter.is_meta for parameter in part.parameters()):
            part.to_empty(device=device)
            for name, parameter in part.named_parameters():
                fill(parameter, initial(name, parameter.shape, seed, layers))


def initial(name: str, shape: torch.Size, seed: int, layers: int) -> Tensor:
    """The whole initial value of one parameter: it depends on its name and the seed, never on the mesh."""
    value = torch.ones(shape) if name.endswith("norm.weight") else torch.empty(shape)
    if not name.endswith("norm.weight"):
        value.normal_(0.0, initial_std(name, layers), generator=generator("weights", seed, name))
    return value


@torch.no_grad()
def fill(parameter: Tensor, whole: Tensor) -> None:
    """Copy this rank's shard of `whole` into `parameter`, without communication."""
    if isinstance(parameter, DTensor):
        shard = distribute_tensor(
            whole.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
        )
        parameter.to_local().copy_(shard.to_local())
    else:
        parameter.copy_(whole)
