"""Where a model comes from."""

from __future__ import annotations

import pytest

from launcher.errors import InputError
from launcher.planner.model import from_config, from_parameters, from_preset
from launcher.planner.request import nearest_preset

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def test_a_config_is_the_preset_of_the_same_shape() -> None:
    assert from_config(LLAMA, "config.json").sizes == from_preset("8B").sizes
    assert from_config({"text_config": LLAMA}, "config.json").sizes == from_preset("8B").sizes


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        (
            {"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2},
            46_702_792_704,
        ),
        (  # Qwen3-8B
            {
                "num_hidden_layers": 36,
                "intermediate_size": 12288,
                "vocab_size": 151936,
                "head_dim": 128,
            },
            8_190_735_360 - 36 * 2 * 128,
        ),
        (  # Qwen3-32B: heads wider than the model
            {
                "hidden_size": 5120,
                "num_hidden_layers": 64,
                "num_attention_heads": 64,
                "intermediate_size": 25600,
                "vocab_size": 151936,
                "head_dim": 128,
            },
            32_762_123_264 - 64 * 2 * 128,
        ),
    ],
)
def test_published_models_have_their_published_sizes(changes: dict[str, int], total: int) -> None:
    """Totals without the norms of queries and keys that Qwen3 adds."""
    assert from_config({**LLAMA, **changes}, "config.json").sizes.total == total


def test_a_missing_key_is_named_with_the_file() -> None:
    with pytest.raises(InputError, match=r"config\.json: no number 'hidden_size'"):
        from_config({**LLAMA, "hidden_size": None}, "config.json")


def test_what_is_not_modelled_is_said() -> None:
    assert "kv_lora_rank" in from_config({**LLAMA, "kv_lora_rank": 512}, "config.json").notes[0]


@pytest.mark.parametrize("vocab", [None, 32_000])
def test_the_number_of_parameters_is_kept(vocab: int | None) -> None:
    assert from_parameters(7e9, 32, 4096, vocab=vocab).sizes.total == pytest.approx(7e9)


def test_depth_and_width_are_assumed_aloud() -> None:
    model = from_parameters(7e9)
    assert (model.sizes.layers, model.sizes.dim) == (33, 33 * 128)
    assert "assumed" in model.notes[0]


def test_too_few_parameters_for_the_shape() -> None:
    with pytest.raises(InputError, match="too few"):
        from_parameters(1e6, 32, 4096, vocab=32_000)


def test_an_unknown_preset_suggests_one() -> None:
    with pytest.raises(InputError, match="70B"):
        from_preset("70")


def test_the_command_takes_the_nearest_preset() -> None:
    assert nearest_preset(from_parameters(65e9, 80, 8192)) == "70B"
    assert nearest_preset(from_parameters(6.8e9, 32, 4096)) == "7B"
