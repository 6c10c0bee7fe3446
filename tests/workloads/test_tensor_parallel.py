"""Tensor parallelism in all its forms against one process."""

from __future__ import annotations

import pytest
import torch

from tests.workloads.reference import Run, assert_same_training, distributed, single_process
from workloads.common.config import preset
from workloads.common.fused import fused_source, interleave, separate
from workloads.common.strategy import Job
from workloads.common.weights import Source, seeded
from workloads.tp import TP


@pytest.fixture(scope="module")
def reference() -> Run:
    return single_process(preset("debug", layers=2))


@pytest.mark.parametrize(
    ("mesh", "flags"),
    [
        ("tp=2", ()),
        ("tp=4", ()),
        ("tp=2", ("--no-sequence-parallel",)),
        ("tp=2", ("--no-sequence-parallel", "--no-loss-parallel")),
        ("dp_shard=2,tp=2", ("--recompute",)),
        ("dp_replicate=2,dp_shard=2,tp=2", ()),
    ],
)
def test_tp(reference: Run, mesh: str, flags: tuple[str, ...]) -> None:
    assert_same_training(distributed(TP, mesh, *flags), reference)


def test_interleaved_rows_are_cut_by_rank_and_come_back() -> None:
    q, k, v = torch.arange(8), torch.arange(10, 14), torch.arange(20, 24)
    fused = interleave([q, k, v], 2)
    assert fused.chunk(2)[1].tolist() == [4, 5, 6, 7, 12, 13, 22, 23]
    assert all(torch.equal(*pair) for pair in zip(separate(fused, [8, 4, 4], 2), (q, k, v), strict=True))


class NaiveTP(TP):
    """Cuts the plain concatenation of q, k, v and of gate, up."""

    def weights(self, job: Job) -> Source:
        return fused_source(seeded(job.options.seed, job.config.layers), job.config, degree=1)


def test_fused_products_are_right_and_the_naive_cut_is_wrong(reference: Run) -> None:
    right = distributed(TP, "tp=2", "--fused", "--steps", "3").losses
    wrong = distributed(NaiveTP, "tp=2", "--fused", "--steps", "3").losses
    assert right == pytest.approx(reference.losses[:3], abs=1e-5)
    assert abs(wrong[0] - reference.losses[0]) > 1e-4
