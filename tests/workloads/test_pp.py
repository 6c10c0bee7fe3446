"""Pipelines against one process, under every schedule; bubble and stored micro-batches; a stage that fails."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from io import StringIO
from pathlib import Path

import pytest
from torch import Tensor

from tests.workloads.ranks import RankFailed, on_standing_ranks, run_ranks
from tests.workloads.reference import TINY, Run, assert_same_training, distributed, single_process
from workloads.common.config import preset
from workloads.common.loop import train
from workloads.common.pipeline import SCHEDULES
from workloads.pp import PP

MICRO_BATCHED = 5e-3  # of parameters: sums over micro-batches round in another order, which Adam magnifies
# At the usual rate these depths amplify rounding beyond the tolerance in ten steps, in one process too.
LR = 1e-3
FOUR = ("--layers", "4", "--accumulate", "4", "--lr", str(LR))
SIX = ("--layers", "6", "--accumulate", "8", "--lr", str(LR))  # eight stages, each of which has something to do


@pytest.fixture(scope="module")
def references() -> dict[tuple[str, ...], Run]:
    return {flags: single_process(preset("debug", layers=layers), lr=LR) for flags, layers in ((FOUR, 4), (SIX, 6))}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mesh", ["pp=2", "pp=4"])
def test_training(references: dict[tuple[str, ...], Run], mesh: str, schedule: str) -> None:
    depth = FOUR if mesh == "pp=2" else SIX
    run = distributed(PP, mesh, *depth, "--schedule", schedule)
    assert_same_training(run, references[depth], parameter=MICRO_BATCHED)


def test_training_of_traced_stages(references: dict[tuple[str, ...], Run]) -> None:
    run = distributed(PP, "pp=2", *FOUR, "--split", "tracer")
    assert_same_training(run, references[FOUR], parameter=MICRO_BATCHED)


def test_more_traced_stages_than_torch_can_connect_are_refused() -> None:
    with pytest.raises(RankFailed, match="--split tracer has two stages"):
        distributed(PP, "pp=2", *SIX, "--schedule", "LoopedBFS", "--split", "tracer")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_training_with_fsdp(references: dict[tuple[str, ...], Run], schedule: str) -> None:
    run = distributed(PP, "pp=2,dp_shard=2", *FOUR, "--schedule", schedule)
    assert_same_training(run, references[FOUR], parameter=MICRO_BATCHED)


def what_is_printed(schedule: str) -> str:
    text = StringIO()
    with contextlib.redirect_stdout(text):
        train(PP(), [*TINY, *SIX, "--mesh", "pp=2", "--schedule", schedule, "--steps", "2"])
    return text.getvalue()


@pytest.mark.parametrize(("schedule", "peak"), [("GPipe", "[8, 8]"), ("1F1B", "[2, 1]"), ("ZBVZeroBubble", None)])
def test_measured_peak_is_that_of_theory(schedule: str, peak: str | None) -> None:
    printed = on_standing_ranks(what_is_printed, 2, schedule)[0]
    found = re.search(r"measured (\[.*\]), theory (\[.*\])", printed)
    assert found, printed
    assert found[1] == found[2] == (peak or found[2])
    bubble = re.search(r"bubble: measured ([\d.]+), theory ([\d.]+)", printed)
    assert bubble, printed
    assert 0 <= float(bubble[2]) < 1
    assert 0 <= float(bubble[1]) < 1


class Broken(PP):
    """A pipeline whose second rank fails in its third step and then hangs, its connections open."""

    steps = 0

    def forward_backward(self, *args: object) -> Tensor | None:
        self.steps += 1
        if self.rank == 1 and self.steps == 3:
            with contextlib.suppress(ArithmeticError), self.peers:
                raise ArithmeticError("stage gives up")
            threading.Event().wait(60)
        return super().forward_backward(*args)  # type: ignore[arg-type]


def train_broken(directory: str) -> None:
    os.dup2(os.open(f"{directory}/{os.environ['RANK']}", os.O_WRONLY | os.O_CREAT), 2)
    train(Broken(), [*TINY, *SIX, "--mesh", "pp=4"])


def test_peers_of_a_failed_stage_leave_and_name_it(tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match=r"rank [023] died"):
        run_ranks(train_broken, 4, str(tmp_path), deadline=50.0)
    cause = "rank 1 (pp1) failed: ArithmeticError: stage gives up"
    assert cause in (tmp_path / "1").read_text()
    assert any(f"leaves, for {cause}" in (tmp_path / rank).read_text() for rank in "023")
