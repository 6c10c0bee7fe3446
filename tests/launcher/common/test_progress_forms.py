"""Forms of log lines that few trainers write."""

from __future__ import annotations

import pytest

from launcher.common.progress import LogReader, Progress


def _read(text: str) -> list[Progress]:
    reader = LogReader()
    return reader.feed(text.encode()) + reader.close()


BIG = f"Epoch 0: 5%|# | {'9' * 5000}/1e400 [00:30<16:10, 1.0it/s] step {'9' * 5000}/1e400 loss 2"


def test_carriage_returns_that_a_viewer_spelt_part_a_line_as_the_bytes_do() -> None:
    line = "^M  3%|▎ | 30/1000 [00:30<16:10, 1.0it/s]^M  3%|▎ | 31/1000 [00:31<16:09, 1.0it/s]^M    ^M"
    records = _read(line + "{'loss': 1.75, 'learning_rate': 2e-05, 'epoch': 0.2}")
    assert [(record.step, record.loss) for record in records] == [(30, None), (31, None), (None, 1.75)]


@pytest.mark.parametrize("value", ["None", "2.125"])
def test_a_validation_loss_beside_the_one_of_training_is_no_validation(value: str) -> None:
    (record,) = _read(
        f"Ep 1 | iter 8 | step 8: loss train (curr): 1.75, val (prev val iter): {value} | iter time: 250 ms"
    )
    assert (record.step, record.loss, record.step_s) == (8, 1.75, 0.25)


def test_the_current_rate_may_be_shortened() -> None:
    (record,) = _read("Epoch 4/300, Step 6/7, loss: 0.25, lbox: 0.05, cur_lr: 0.005")
    assert (record.step, record.loss, record.lr) == (6, 0.25, 0.005)


def test_a_bar_of_graphs_that_are_captured_counts_no_steps() -> None:
    assert not _read("Capturing batches (bs=4 mem=9.5 GB): 50%|##### | 12/24 [00:04<00:04, 3.0it/s]")


def test_a_rate_behind_a_learning_rate_names_the_next_number() -> None:
    (record,) = _read("epoch 1/3 step 20/40 (50.0%) loss 2.5 lr 1e-4 tok/s 12.5k eta 00:10:00")
    assert (record.lr, record.tokens_per_s) == (1e-4, 12_500)
    (record,) = _read("step 20 loss 2.5 MFU 41% tok/s 12.5k")
    assert (record.loss, record.tokens_per_s) == (2.5, 12_500)


def test_a_step_in_brackets_before_the_name_of_a_measure() -> None:
    (record,) = _read("I0101 10:00:00.0 14 utils.py:50] [100] training_loss = 2.25")
    assert (record.step, record.loss) == (100, 2.25)


@pytest.mark.parametrize(
    "line",
    ["Iteration 7 skipped: nan", "step: inf loss: 2.0", "epoch: nan step: 1/inf", "loss: 1 max_steps: nan", BIG],
)
def test_numbers_that_are_none_are_no_counts(line: str) -> None:
    assert not [record for record in _read(line) if record.step not in (None, 7)]


@pytest.mark.parametrize("what", ["Computing reference probabilities", "sampling loop time step"])
def test_bars_of_other_work_in_a_training(what: str) -> None:
    assert not _read(f"{what}:  20%|##  | 10/50 [00:10<00:40,  1.00it/s]")


def test_the_best_model_is_no_step() -> None:
    assert not _read("Best model at epoch 3 step 1200 with loss 2.125")
