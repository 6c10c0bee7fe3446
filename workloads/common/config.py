"""The shape of the model as plain numbers: importable without torch, so that planners can read it too."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ModelConfig:
    """A Llama-style decoder; with `experts` > 0 every feed-forward is a mixture, `top_k` of them for each token."""

    dim: int = 128
    layers: int = 4
    heads: int = 8
    kv_heads: int = 4  # grouped-query attention: heads / kv_heads queries share one key and value
    hidden: int = 384  # width of the feed-forward, of each expert in a mixture
    vocab: int = 256  # bytes
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tied: bool = False  # the output projection is the embedding
    dropout: float = 0.0
    experts: int = 0
    top_k: int = 2

    def __post_init__(self) -> None:
        if self.dim % self.heads or self.heads % self.kv_heads:
            raise ValueError(
                f"dim {self.dim}, heads {self.heads} and kv_heads {self.kv_heads} must divide in this order"
            )
        if self.experts and not 0 < self.top_k <= self.experts:
            raise ValueError(f"top_k {self.top_k} must be between 1 and experts {self.experts}")

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


PRESETS: dict[str, ModelConfig] = {
    "debug": ModelConfig(),
    "38M": ModelConfig(dim=512, layers=9, heads=8, kv_heads=8, hidden=2048),
    "1B": ModelConfig(2048, 16, 32, 8, 8192, vocab=128_256, rope_theta=500_000.0, tied=True),
    "7B": ModelConfig(4096, 32, 32, 32, 11_008, vocab=32_000),
    "8B": ModelConfig(4096, 32, 32, 8, 14_336, vocab=128_256, rope_theta=500_000.0),
    "70B": ModelConfig(8192, 80, 64, 8, 28_672, vocab=128_256, rope_theta=500_000.0),
}


def preset(name: str, **changes: float | None) -> ModelConfig:
    """The preset `name` with the given (not None) fields changed; raises KeyError for an unknown name."""
    return replace(PRESETS[name], **{field: value for field, value in changes.items() if value is not None})  # type: ignore[arg-type]
