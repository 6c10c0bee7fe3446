"""A Llama-style decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU or a mixture of experts.

Shapes: B sequences, S tokens (of this rank), D = head_dim, Hq query heads and Hkv key/value heads *of this rank*:
head counts come from the tensors, so a tensor-parallel rank with a part of the heads runs the same code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from workloads.common.config import ModelConfig
from workloads.common.precision import wide

Rotation = tuple[Tensor, Tensor]  # cos and sin, each (S, D)
AttentionFn = Callable[..., Tensor]
"""`attention_fn(q, k, v, *, causal) -> out`: q and out (B, S, Hq, D), k and v (B, S, Hkv, D)."""


def full_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """The default kernel: every query sees all keys (up to its own position if causal) of this rank."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    return out.transpose(1, 2)


def rotation_of(positions: Tensor, head_dim: int, theta: float) -> Rotation:
    """cos and sin (S, D) in fp32 for global `positions` (S,), in the half-split convention of Hugging Face's Llama."""
    exponents = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angles = positions.float()[:, None] * (theta**-exponents)[None, :]
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Apply rotary positions to x (B, S, H, D)."""
    cos, sin = (part[None, :, None, :].to(x.dtype) for part in rotation)
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


class Attention(nn.Module):
    """Causal self-attention. `attention_fn` may be replaced (context parallelism does) on the built module."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.causal = True
        self.attention_fn: AttentionFn = full_attention
        self.q = nn.Linear(config.dim, config.heads * config.head_dim, bias=False)
        self.k = nn.Linear(config.dim, config.kv_heads * config.head_dim, bias=False)
        self.v = nn.Linear(config.dim, config.kv_heads * config.head_dim, bias=False)
        self.out = nn.Linear(config.heads * config.head_dim, config.dim, bias=False)

    def forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        q, k, v = (project(x).unflatten(-1, (-1, self.head_dim)) for project in (self.q, self.k, self.v))
        out = self.attention_fn(rotate(q, rotation), rotate(k, rotation), v, causal=self.causal)
        projected: Tensor = self.out(out.flatten(2))
        return projected


class MLP(nn.Module):
    """SwiGLU: down(silu(gate x) * up x)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.dim, config.hidden, bias=False)
        self.up = nn.Linear(config.dim, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return projected


class Block(nn.Module):
    """x + attention(norm x), then x + feed-forward(norm x). Has `.mlp`, or `.moe` where the config has experts."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.checkpointing = False  # keep only the input for backward and compute the rest again
        self.attention_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.attention = Attention(config)
        self.mlp_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        if config.experts:
            from workloads.common.moe import MoE

            self.moe = MoE(config)
        else:
            self.mlp = MLP(config)

    def forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        if self.checkpointing and torch.is_grad_enabled():
            recomputed: Tensor = checkpoint(self._forward, x, rotation, use_reentrant=False)
            return recomputed
        return self._forward(x, rotation)

    def _forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        x = x + F.dropout(self.attention(self.attention_norm(x), rotation), self.dropout, self.training)
        feed_forward = self.moe if hasattr(self, "moe") else self.mlp
        return x + F.dropout(feed_forward(self.mlp_norm(x)), self.dropout, self.training)


class Transformer(nn.Module):
    """tokens (B, S) -> logits (B, S, vocab).

    `layers` is a ModuleDict keyed by the global layer index and `embedding`, `norm`, `output` may be set to None, so a
    pipeline stage is this model with parts removed and unchanged parameter names; its input is then hidden (B, S, dim).
    """

    embedding: nn.Embedding | None
    norm: nn.RMSNorm | None
    output: nn.Linear | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.dim)
        self.layers = nn.ModuleDict({str(index): Block(config) for index in range(config.layers)})
        self.norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.output = None if config.tied else nn.Linear(config.dim, config.vocab, bias=False)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """`positions` (S,): global positions of this rank's tokens, by default 0 … S−1; give them if S is sharded."""
        if positions is None:
            positions = torch.arange(x.shape[1], device=x.device)
        rotation = rotation_of(positions, self.config.head_dim, self.config.rope_theta)
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x, rotation)
        if self.norm is not None:
            x = self.norm(x)
        if self.config.tied and self.embedding is not None and self.norm is not None:
            return F.linear(x, self.embedding.weight)
        return x if self.output is None else self.output(x)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean next-token cross-entropy in nats over logits (B, S, vocab) and targets (B, S), in fp32 or wider."""
    return F.cross_entropy(wide(logits.flatten(0, 1)), targets.flatten())


def initial_std(name: str, layers: int) -> float:
    """0.02 everywhere, shrunk by 1/sqrt(2·layers) for the projections that add to the residual stream (GPT-2)."""
    return 0.02 / math.sqrt(2 * layers) if name.endswith(("out.weight", "down.weight", "down")) else 0.02


def build_on_meta(config: ModelConfig) -> Transformer:
    """The model without memory: strategies shard it first, `weights.materialize` allocates and fills what is left."""
    with torch.device("meta"):
        return Transformer(config)


def unwrapped(module: nn.Module) -> Any:
    """The Transformer behind DDP or torch.compile."""
    while hasattr(module, "module") or hasattr(module, "_orig_mod"):
        module = getattr(module, "module", None) or module._orig_mod  # type: ignore[assignment]
    return module
