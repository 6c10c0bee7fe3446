"""In which types parameters are kept, computed with and reduced."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.fsdp import MixedPrecisionPolicy


def kept(dtype: str) -> torch.dtype:
    """Parameters, optimizer state and reductions: float32 beside bfloat16, which would lose small updates."""
    return torch.float64 if dtype == "float64" else torch.float32


def policy(dtype: str) -> MixedPrecisionPolicy:
    """FSDP casts parameters when it gathers them, and reduces gradients in the type that they are kept in."""
    compute = getattr(torch, dtype)
    if compute == kept(dtype):  # named all the same, FSDP would look through every block's inputs for what to cast
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=kept(dtype))


def autocast(dtype: str, device: torch.device) -> torch.autocast:
    """For replicas, whose parameters nobody casts: products in bfloat16, sums over many terms in float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype == "bfloat16")


def wide(x: Tensor) -> Tensor:
    """`x` in float32, or as it is where it has more digits."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
