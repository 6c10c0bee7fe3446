"""Products of parallelisms on eight ranks against one process."""

from __future__ import annotations

import pytest
import torch

from tests.workloads.reference import Run, assert_same_training, distributed, single_process
from workloads.common.config import preset
from workloads.common.mesh import World
from workloads.common.model import Transformer
from workloads.common.moe import Routing, mixtures, rebalance
from workloads.nd import ND

DENSE, MIXTURE = preset("debug", layers=4), preset("debug", layers=4, experts=4, top_k=2)
MICRO_BATCHED = 5e-3  # of parameters: sums over micro-batches round in another order, which Adam magnifies
# At the usual rate one process amplifies a change of its weights by 1e-7 to 2.4e-5 of its ninth loss.
LR = 1e-3
FLAGS = ("--layers", "4", "--accumulate", "2", "--lr", str(LR))
MIXTURE_FLAGS = (*FLAGS, "--experts", "4", "--top-k", "2", "--balance", "bias", "--bias-rate", "0.01")

DENSE_MESHES = [
    ("dp_replicate=2,dp_shard=2,tp=2",),
    ("dp_replicate=2,dp_shard=2,cp=2", "--impl", "allgather"),
    ("dp_shard=2,cp=2,tp=2",),
    ("dp_shard=2,cp=2,tp=2", "--impl", "ulysses", "--no-sequence-parallel", "--no-loss-parallel"),
    ("cp=4,tp=2", "--ulysses", "2"),
    ("dp_replicate=4,tp=2",),
    ("dp_shard=8", "--accumulate", "1"),
    ("pp=2,dp_shard=2,tp=2",),
    ("pp=2,dp_replicate=2,dp_shard=2", "--schedule", "Interleaved1F1B"),
    ("pp=2,dp_shard=2,cp=2", "--schedule", "ZBVZeroBubble"),
    ("pp=2,cp=2,tp=2", "--schedule", "GPipe"),
    ("pp=2,dp_replicate=2,tp=2",),
    ("pp=4,tp=2", "--accumulate", "4"),
    ("pp=4,dp_shard=2", "--accumulate", "4"),
]
MIXTURE_MESHES = [
    ("dp_shard=4,cp=2,ep=4",),
    ("dp_replicate=2,dp_shard=2,cp=2,ep=4",),
    ("dp_shard=4,tp=2,ep=4",),
    ("pp=2,dp_shard=4,ep=2",),
    ("pp=2,dp_shard=2,tp=2,ep=4",),
    ("pp=2,dp_replicate=2,dp_shard=2,ep=2",),
]


@pytest.fixture(scope="module")
def dense() -> Run:
    return single_process(DENSE, lr=LR)


@pytest.fixture(scope="module")
def mixture() -> Run:
    def prepare(model: Transformer) -> None:
        for moe in mixtures(model):
            moe.router.routing = Routing("bias", bias_rate=0.01)

    return single_process(MIXTURE, lr=LR, prepare=prepare, after_backward=rebalance)


@pytest.mark.parametrize("case", DENSE_MESHES, ids=" ".join)
def test_dense(dense: Run, case: tuple[str, ...]) -> None:
    mesh, *flags = case
    assert_same_training(distributed(ND, mesh, *FLAGS, *flags), dense, parameter=MICRO_BATCHED)


@pytest.mark.parametrize("case", MIXTURE_MESHES, ids=" ".join)
def test_mixture_of_experts(mixture: Run, case: tuple[str, ...]) -> None:
    mesh, *flags = case
    assert_same_training(distributed(ND, mesh, *MIXTURE_FLAGS, *flags), mixture, parameter=MICRO_BATCHED)


@pytest.mark.parametrize(
    ("given", "world", "expected"),
    [
        ({"tp": 2}, 8, {"dp_shard": 4, "tp": 2}),
        ({"pp": 2, "dp_replicate": 4}, 8, {"pp": 2, "dp_replicate": 4, "dp_shard": 1}),
        ({"dp_shard": 2, "tp": 4}, 8, {"dp_shard": 2, "tp": 4}),
    ],
)
def test_dp_shard_is_the_rest(given: dict[str, int], world: int, expected: dict[str, int]) -> None:
    place = World(0, world, 0, world, torch.device("cpu"))
    assert ND().degrees(given, place) == expected
