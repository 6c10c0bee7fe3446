"""The model to plan for: from a preset, from a Hugging Face config.json, or from its number of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from launcher.errors import InputError, suggestion
from workloads.common.config import PRESETS, ModelConfig, preset
from workloads.common.costs import Sizes

HEAD_DIM = 128  # of nearly all models since Llama
DEPTH_TO_WIDTH = 128  # dim ≈ 128 · layers in the same models
NOT_MODELLED = ("kv_lora_rank", "n_shared_experts", "first_k_dense_replace", "sliding_window")


@dataclass(frozen=True)
class Model:
    """Sizes, and what a mesh must divide. `vocab` is 0 where it is not known; `notes` says what was assumed."""

    name: str
    sizes: Sizes
    heads: int
    kv_heads: int
    vocab: int = 0
    notes: tuple[str, ...] = ()


def from_preset(name: str, experts: int | None = None, top_k: int | None = None) -> Model:
    """A preset of the bundled workloads. Raises InputError for an unknown name or impossible experts."""
    if name not in PRESETS:
        raise InputError(
            f"no preset {name!r}{suggestion(name, PRESETS)}", where="--preset", help=f"known: {', '.join(PRESETS)}"
        )
    try:
        config = preset(name, experts=experts, top_k=top_k)
    except ValueError as error:
        raise InputError(str(error), where="--experts") from None
    return _of(name, config)


def _of(name: str, config: ModelConfig) -> Model:
    return Model(name, Sizes.of(config), config.heads, config.kv_heads, config.vocab)


def from_parameters(
    parameters: float,
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    vocab: int | None = None,
    experts: int | None = None,
    top_k: int | None = None,
) -> Model:
    """A model known by its number of parameters; `experts` multiply the feed-forwards of that dense model.

    Depth and width, where not given, follow 12·layers·dim² = parameters with dim = 128·layers. Without `vocab` all
    parameters are in the blocks. Raises InputError where they do not suffice for the shape.
    """
    notes = [] if layers and hidden else ["depth or width were not given: assumed like Llama's"]
    layers = layers or _layers(parameters, hidden)
    hidden = hidden or DEPTH_TO_WIDTH * layers
    heads = heads or max(1, hidden // HEAD_DIM)
    root = (vocab or 0) * hidden
    block = (parameters - 2 * root) / layers
    attention = 4 * hidden * hidden
    if block <= 0 or (experts and block <= attention):
        raise InputError(
            f"{parameters:g} parameters are too few for {layers} layers of width {hidden}", where="--params"
        )
    sizes = replace(Sizes.dense(block * layers, layers, hidden), embedding=root, output=root)
    if experts:
        sizes = replace(
            sizes,
            block=attention,
            router=hidden * experts,
            expert=block - attention,
            experts=experts,
            top_k=top_k or 2,
        )
        notes.append(f"--params is the dense model; {experts} experts make it {sizes.total:.3g} parameters")
    return Model(f"{parameters:g} parameters", sizes, heads, heads, vocab or 0, tuple(notes))


def _layers(parameters: float, hidden: int | None) -> int:
    depth = parameters / (12 * hidden**2) if hidden else (parameters / (12 * DEPTH_TO_WIDTH**2)) ** (1 / 3)
    return max(1, round(depth))


def from_config(document: Mapping[str, Any], where: str) -> Model:
    """A Hugging Face config.json of a Llama-like model, dense or a mixture. Raises InputError naming the key."""
    text = document.get("text_config") or document

    def number(*keys: str, default: int | None = None) -> int:
        value = next((text[key] for key in keys if text.get(key) is not None), default)
        if not isinstance(value, int) or value < 0:
            raise InputError(f"no number {keys[0]!r}", where=where, help="--params, --layers and --hidden instead")
        return value

    heads, dim = number("num_attention_heads"), number("hidden_size")
    experts = number("num_local_experts", "num_experts", "n_routed_experts", default=0)
    width = number("moe_intermediate_size", "intermediate_size") if experts else number("intermediate_size")
    try:
        config = ModelConfig(
            dim=dim,
            layers=number("num_hidden_layers"),
            heads=heads,
            kv_heads=number("num_key_value_heads", default=heads),
            hidden=width,
            vocab=number("vocab_size"),
            tied=bool(text.get("tie_word_embeddings", False)),
            experts=experts,
            top_k=number("num_experts_per_tok", default=2),
        )
    except ValueError as error:
        raise InputError(str(error), where=where) from None
    model = _of(str(document.get("model_type", "model")), config)
    notes = tuple(f"{where}: {key} is not modelled" for key in NOT_MODELLED if text.get(key))
    return replace(
        model, sizes=_with_head_dim(model.sizes, config, number("head_dim", default=config.head_dim)), notes=notes
    )


def _with_head_dim(sizes: Sizes, config: ModelConfig, head_dim: int) -> Sizes:
    """Sizes where heads · head_dim is not the model's width: all four matrices of attention change alike."""
    attention = Sizes.of(replace(config, hidden=0, experts=0)).block
    ratio = head_dim / config.head_dim
    return replace(sizes, block=sizes.block + (ratio - 1) * attention, kv_width=config.kv_heads * head_dim)
