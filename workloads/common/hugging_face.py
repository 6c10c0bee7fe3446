"""Weights in the names and files of Hugging Face's Llama: read by shard, written whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workloads.common.config import ModelConfig
from workloads.common.weights import Source

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_ROOT = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK = {
    "attention_norm": "input_layernorm",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}


def llama_name(name: str) -> str:
    """`layers.3.mlp.up.weight` -> `model.layers.3.mlp.up_proj.weight`; raises ValueError for what Llama has not."""
    if name in _ROOT:
        return _ROOT[name]
    head, layer, rest = name.split(".", 2)
    module, _, kind = rest.rpartition(".")
    if head != "layers" or module not in _BLOCK:
        raise ValueError(f"Hugging Face's Llama has no place for {name}: only dense models are read and written")
    return f"model.layers.{layer}.{_BLOCK[module]}.{kind}"


def stored(directory: Path) -> Source:
    """Parameters out of `directory`'s safetensors; a rank reads only the bytes of its own shard.

    Raises FileNotFoundError without weights, ValueError for a shape that is not the model's.
    """
    from safetensors import safe_open

    index = directory / INDEX
    file_of: Mapping[str, str] = json.loads(index.read_text())["weight_map"] if index.exists() else {}
    opened: dict[str, Any] = {}

    def read(name: str, shape: torch.Size) -> Any:
        theirs = llama_name(name)
        file = file_of.get(theirs, WEIGHTS)
        if file not in opened:
            opened[file] = safe_open(directory / file, framework="pt")
        whole = opened[file].get_slice(theirs)
        if tuple(whole.get_shape()) != tuple(shape):
            raise ValueError(f"{directory / file}: {theirs} has shape {whole.get_shape()}, the model {list(shape)}")
        return whole

    return read


def write(directory: Path, weights: Mapping[str, Tensor], config: ModelConfig) -> None:
    """`model.safetensors` and `config.json` from whole weights under our names: `from_pretrained` reads them."""
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    tensors = {llama_name(name): value.contiguous() for name, value in weights.items()}
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(llama_config(config), indent=2) + "\n")


def llama_config(config: ModelConfig) -> dict[str, Any]:
    """The keyword arguments of `transformers.LlamaConfig` for the same model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab,
        "hidden_size": config.dim,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tied,
        "hidden_act": "silu",
        "torch_dtype": "float32",
    }
