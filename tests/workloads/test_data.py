"""Who reads what when: it follows from the step, on any number of data ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workloads.common.data import TrainingData, load_tokens


def data(index: int = 0, degree: int = 1, batch: int = 8, length: int = 1001, seq: int = 10) -> TrainingData:
    return TrainingData(np.arange(length, dtype=np.uint16), batch, seq, 0, index, degree)


@given(step=st.integers(0, 200), degree=st.sampled_from([1, 2, 4, 8]))
def test_data_ranks_share_out_exactly_the_samples_of_a_step(step: int, degree: int) -> None:
    parts = [data(index, degree).samples(step) for index in range(degree)]
    assert [sample for part in parts for sample in part] == data().samples(step)


def test_an_epoch_reads_every_window_once_and_the_next_in_another_order() -> None:
    whole = data(batch=10)
    first, second = (
        [sample for step in range(start, start + 10) for sample in whole.samples(step)] for start in (0, 10)
    )
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second


def test_targets_are_the_inputs_one_token_later() -> None:
    batch = data()[3]
    assert torch.equal(batch.targets, batch.inputs + 1)
    assert batch.inputs.shape == (8, 10)


def test_workers_change_nothing() -> None:
    plain, ahead = (list(data().loader(2, 5, workers)) for workers in (0, 1))
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(plain, ahead, strict=True))


def test_a_token_file_is_mapped_not_read(tmp_path: Path) -> None:
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "tokens.u16")
    tokens = load_tokens(str(tmp_path / "tokens.u16"), seed=0)
    assert isinstance(tokens, np.memmap)
    assert tokens[999] == 999


def test_a_directory_is_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.txt").write_text("first")
    assert load_tokens(str(tmp_path), seed=0).tobytes() == b"first\nsecond"


def test_the_standard_library_is_text_enough() -> None:
    assert len(load_tokens("stdlib", seed=0)) > 1_000_000


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: load_tokens("/nowhere", 0), "does not exist"),
        (lambda: data(batch=9, degree=2), "does not divide over 2 data ranks"),
        (lambda: data(length=5), "fewer than one sequence"),
    ],
)
def test_what_does_not_fit_is_said(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


def test_micro_batches_are_of_equal_size_or_refused() -> None:
    batch = data(batch=8)[0]
    assert [len(micro.inputs) for micro in batch.split(4)] == [2, 2, 2, 2]
    for parts in (3, 16):  # `chunk` would give fewer, and the step would go on with gradients that nobody reduces
        with pytest.raises(ValueError, match="--accumulate"):
            list(batch.split(parts))
