"""One product for q, k and v, one for gate and up: fewer, larger matrix products.

Under tensor parallelism rank r must get the r-th part of *each* of the fused matrices. Their rows are therefore stored
in the order rank, then matrix; cutting the plain concatenation would hand rank 0 nothing but queries.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workloads.common.config import ModelConfig
from workloads.common.model import MLP, Attention, Block, Rotation, Transformer, rotate
from workloads.common.weights import Source

FUSED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}


class FusedAttention(Attention):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.heads_per_key = config.heads // config.kv_heads
        del self.q, self.k, self.v
        self.qkv = nn.Linear(config.dim, (config.heads + 2 * config.kv_heads) * config.head_dim, bias=False)

    def forward(self, x: Tensor, rotation: Rotation) -> Tensor:
        heads = self.qkv(x).unflatten(-1, (-1, self.head_dim))
        keys = heads.shape[2] // (self.heads_per_key + 2)
        q, k, v = torch.split(heads, [keys * self.heads_per_key, keys, keys], dim=2)
        out = self.attention_fn(rotate(q, rotation), rotate(k, rotation), v, causal=self.causal)
        projected: Tensor = self.out(out.flatten(2))
        return projected


class FusedMLP(MLP):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        del self.gate, self.up
        self.gate_up = nn.Linear(config.dim, 2 * config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        projected: Tensor = self.down(F.silu(gate) * up)
        return projected


def fuse(model: Transformer) -> None:
    """Replace attention and feed-forward of every block by their fused form; the model must still be on meta."""
    with torch.device("meta"):
        for block in model.layers.values():
            assert isinstance(block, Block)
            block.attention = FusedAttention(model.config)
            if hasattr(block, "mlp"):
                block.mlp = FusedMLP(model.config)


def interleave(matrices: Sequence[Tensor], degree: int) -> Tensor:
    """Rows of all matrices, ordered so that the r-th of `degree` equal parts holds the r-th part of each."""
    parts = [matrix.chunk(degree) for matrix in matrices]
    return torch.cat([part[rank] for rank in range(degree) for part in parts])


def separate(fused: Tensor, rows: Sequence[int], degree: int) -> list[Tensor]:
    """The matrices of `rows` rows each that `interleave` joined."""
    ranks = [torch.split(part, [size // degree for size in rows]) for part in fused.chunk(degree)]
    return [torch.cat([rank[index] for rank in ranks]) for index in range(len(rows))]


def fused_source(source: Source, config: ModelConfig, degree: int) -> Source:
    """Parameters of the fused model out of a source of the plain one."""
    rows = {
        "q": config.heads * config.head_dim,
        "k": config.kv_heads * config.head_dim,
        "v": config.kv_heads * config.head_dim,
        "gate": config.hidden,
        "up": config.hidden,
    }

    def read(name: str, shape: torch.Size) -> object:
        head, _, module = name.removesuffix(".weight").rpartition(".")
        if module not in FUSED:
            return source(name, shape)
        plain = (source(f"{head}.{part}.weight", torch.Size((rows[part], shape[1]))) for part in FUSED[module])
        return interleave([matrix[:, :] for matrix in plain], degree)

    return read
