"""Collectives whose names differ between torch versions, under the newest name."""

from __future__ import annotations

from torch import distributed as dist

all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
