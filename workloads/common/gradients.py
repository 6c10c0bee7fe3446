"""The gradient norm that is right on every mesh, and its clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement


def settle(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Every gradient, placed as its parameter: sums over an axis that are still pending (Partial) are carried out."""
    gradients: list[Tensor] = []
    for parameter in parameters:
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and gradient.placements != (wanted := _placements(parameter)):
            parameter.grad = gradient = gradient.redistribute(placements=wanted)
        if gradient is not None:
            gradients.append(gradient)
    return gradients


def _placements(parameter: nn.Parameter) -> tuple[Placement, ...]:
    assert isinstance(parameter, DTensor)
    return parameter.placements


def shards_of(gradient: Tensor) -> int:
    """Into how many different pieces the tensor is cut; every other rank that holds it holds a copy."""
    if not isinstance(gradient, DTensor):
        return 1
    sizes = zip(gradient.placements, gradient.device_mesh.shape, strict=True)
    return math.prod(size for placement, size in sizes if not placement.is_replicate())  # Shard or _StridedShard


def local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


def square_share(gradients: Iterable[Tensor], holders: int) -> Tensor:
    """This rank's share of the squared global norm, a float64 scalar: summed over all ranks the shares give its square.

    `holders` ranks hold each parameter (world size / pipeline stages); a piece that k of them hold counts 1/k on each.
    """
    pieces = list(gradients)
    if not pieces:
        return torch.zeros((), dtype=torch.float64)
    norms = torch.stack(torch._foreach_norm([local(gradient) for gradient in pieces])).double()
    shares = torch.tensor([shards_of(gradient) / holders for gradient in pieces], dtype=torch.float64)
    return (norms.square() * shares.to(norms.device)).sum()


@torch.no_grad()
def clip(gradients: Iterable[Tensor], norm: float, limit: float) -> None:
    """Scale gradients down to the global norm `limit`; 0 is no limit. The factor is that of torch's clip_grad_norm_."""
    factor = limit / (norm + 1e-6)
    if 0 < factor < 1:
        torch._foreach_mul_([local(gradient) for gradient in gradients], factor)
