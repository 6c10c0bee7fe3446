"""Floating-point operations that a model needs, and that devices offer. Importable without torch."""

from __future__ import annotations

from workloads.common.costs import Sizes

PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "B200": 2250e12, "L40S": 362e12}  # dense bf16, by name


def flops_per_token(sizes: Sizes, seq: int) -> float:
    """6 per parameter and token, and 12·layers·dim·seq for the attention scores (PaLM, appendix B)."""
    return 6 * sizes.active + 12 * sizes.layers * sizes.dim * seq


def family(device: str) -> str | None:
    """The key of PEAK_FLOPS that a device's name holds (`NVIDIA H100 80GB HBM3`, `h100-80g`); None for others."""
    return next((key for key in PEAK_FLOPS if key in device.upper()), None)
