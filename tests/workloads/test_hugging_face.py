"""Our model against Hugging Face's Llama, through the files that both read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.workloads.ranks import on_standing_ranks
from tests.workloads.reference import TINY
from workloads.common.config import ModelConfig, preset
from workloads.common.hugging_face import llama_config, llama_name, stored, write
from workloads.common.loop import train
from workloads.common.model import Transformer, build_on_meta
from workloads.common.weights import materialize, seeded
from workloads.tp import TP

transformers = pytest.importorskip("transformers")
CPU = torch.device("cpu")
CONFIGS = {
    "grouped": preset("debug", layers=2),
    "tied": ModelConfig(dim=64, layers=2, heads=4, kv_heads=4, hidden=96, vocab=64, tied=True),
}


def built(config: ModelConfig) -> Transformer:
    model = build_on_meta(config)
    materialize([model], CPU, seeded(1, config.layers))
    return model


@pytest.mark.parametrize("name", CONFIGS)
def test_same_logits_as_llama_from_the_files_that_we_write(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    model = built(config)
    write(tmp_path, dict(model.named_parameters()), config)
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    tokens = torch.arange(48).view(2, 24) % config.vocab
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), theirs(tokens).logits, atol=1e-4, rtol=0)


def test_same_logits_from_the_files_that_llama_writes(tmp_path: Path) -> None:
    config = CONFIGS["grouped"]
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama_config(config)))
    theirs.save_pretrained(tmp_path)
    model = build_on_meta(config)
    materialize([model], CPU, stored(tmp_path))
    tokens = torch.arange(24).view(1, 24)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), theirs(tokens).logits, atol=1e-4, rtol=0)


def test_another_shape_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, dict(built(CONFIGS["grouped"]).named_parameters()), CONFIGS["grouped"])
    with pytest.raises(ValueError, match=r"mlp\.gate_proj\.weight has shape"):
        materialize([build_on_meta(preset("debug", layers=2, hidden=512))], CPU, stored(tmp_path))


def test_experts_have_no_place_in_llama() -> None:
    with pytest.raises(ValueError, match="only dense models"):
        llama_name("layers.0.moe.experts.gate")


def _losses(load: str, export: str) -> list[float]:
    return train(TP(), [*TINY, "--steps", "2", "--mesh", "tp=2", "--load", load, "--export", export]).losses


def test_tensor_ranks_read_their_slices_and_export_the_whole(tmp_path: Path) -> None:
    config = CONFIGS["grouped"]
    written: dict[str, Tensor] = dict(built(config).named_parameters())
    write(tmp_path / "before", written, config)
    losses = on_standing_ranks(_losses, 2, str(tmp_path / "before"), str(tmp_path / "after"))[0]
    assert losses == on_standing_ranks(_losses, 2, str(tmp_path / "before"), "")[0]
    trained = build_on_meta(config)
    materialize([trained], CPU, stored(tmp_path / "after"))
    moved = {name for name, value in trained.named_parameters() if not torch.equal(value, written[name])}
    assert moved == set(written)
