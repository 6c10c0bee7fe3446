"""Pipelines without a network: how layers and stages are dealt, and what schedules cost in theory."""

from __future__ import annotations

import pytest

from workloads.common.config import preset
from workloads.common.model import build_on_meta
from workloads.common.pipeline import SCHEDULES, Pipeline, cut, split_layers
from workloads.common.pipeline_theory import (
    Step,
    bubble_formula,
    gpipe,
    one_forward_one_backward,
    peak_stored,
    play,
)


@pytest.mark.parametrize("microbatches", [1, 2, 4, 9, 32])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_played_schedules_have_the_bubble_of_the_formula(ranks: int, microbatches: int) -> None:
    for orders in (gpipe(ranks, microbatches), one_forward_one_backward(ranks, microbatches)):
        timeline = play(orders)
        assert timeline.bubble == pytest.approx(bubble_formula(ranks, 1, microbatches))
        assert timeline.length == 3 * (microbatches + ranks - 1)


def test_known_bubbles() -> None:
    assert bubble_formula(4, 1, 4) == pytest.approx(3 / 7)
    assert bubble_formula(4, 1, 32) == pytest.approx(3 / 35)


@pytest.mark.parametrize("microbatches", [2, 4, 9])
def test_gpipe_stores_all_and_1f1b_what_is_ahead(microbatches: int) -> None:
    assert play(gpipe(4, microbatches)).peak == dict.fromkeys(range(4), microbatches)
    expected = {rank: min(microbatches, 4 - rank) for rank in range(4)}
    assert play(one_forward_one_backward(4, microbatches)).peak == expected


def test_halved_backward_keeps_the_activations_until_its_second_half() -> None:
    steps = [Step(0, "F", 0), Step(0, "I", 0), Step(0, "F", 1), Step(0, "W", 0), Step(0, "I", 1), Step(0, "W", 1)]
    assert peak_stored(steps) == 2


def test_orders_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="waits for itself"):
        play({0: [Step(0, "B", 0), Step(0, "F", 0)], 1: [Step(1, "F", 0), Step(1, "B", 0)]})


@pytest.mark.parametrize(
    ("layers", "stages", "lighter"), [(8, 4, 1), (4, 4, 1), (32, 8, 1), (9, 4, 0), (80, 16, 1), (6, 4, 2)]
)
def test_layers_are_dealt_once_and_ends_are_lighter(layers: int, stages: int, lighter: int) -> None:
    split = split_layers(layers, stages, lighter)
    assert [layer for part in split for layer in part] == list(range(layers))
    sizes = [len(part) for part in split]
    inner = sizes[1:-1]
    assert max(inner) - min(inner) <= 1
    assert max(sizes[0], sizes[-1]) <= max(inner)
    if lighter and layers > stages:
        assert sizes[0] < max(inner)


def test_too_many_stages_are_refused() -> None:
    with pytest.raises(ValueError, match="2 layers are too few for 8 stages"):
        split_layers(2, 8, 1)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_stage_is_on_one_rank(schedule: str) -> None:
    per_rank = 1 if schedule in ("GPipe", "1F1B") else 2
    shape = Pipeline(schedule, 4, per_rank, 8)
    owned = [stage for rank in range(4) for stage in shape.stages_of(rank)]
    assert sorted(owned) == list(range(4 * per_rank))


def test_v_schedules_put_the_last_stage_on_the_first_rank() -> None:
    assert Pipeline("ZBVZeroBubble", 4, 2, 8).stages_of(0) == (0, 7)
    assert Pipeline("Interleaved1F1B", 4, 3, 8).stages_of(1) == (1, 5, 9)


@pytest.mark.parametrize(("schedule", "stages"), [("1F1B", 2), ("GPipe", 3), ("DualPipeV", 1), ("ZBVZeroBubble", 3)])
def test_schedules_refuse_other_numbers_of_stages(schedule: str, stages: int) -> None:
    with pytest.raises(ValueError, match=f"{schedule} has .*, not {stages} stages per rank"):
        Pipeline(schedule, 4, stages, 8)


def test_stages_keep_the_names_of_the_whole_model() -> None:
    model = build_on_meta(preset("debug", layers=4))
    first, last = cut(model, range(1), True, False), cut(model, range(1, 4), False, True)
    names = {name for stage in (first, last) for name, _ in stage.named_parameters()}
    assert names == {name for name, _ in model.named_parameters()}
    assert first.output is None and last.embedding is None


def test_tied_embeddings_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="tied"):
        cut(build_on_meta(preset("debug", layers=2, tied=True)), range(1), True, False)
