"""Random numbers: equal weights on every mesh; dropout that differs between data ranks, not inside a TP group."""

from __future__ import annotations

import hashlib

import torch


def mixed(*parts: object) -> int:
    """One 63-bit seed from any printable parts, the same in every process and version of Python."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(*parts: object) -> torch.Generator:
    """A CPU generator seeded by `parts`."""
    return torch.Generator().manual_seed(mixed(*parts))


def seed_step(seed: int, step: int, data_index: int, stage: int) -> None:
    """Start the global generators anew at every step, so that a resumed run drops out what the first would have."""
    torch.manual_seed(mixed("step", seed, step, data_index, stage))


def make_deterministic() -> None:
    """Deterministic kernels only; torch raises RuntimeError where an operation has none."""
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
