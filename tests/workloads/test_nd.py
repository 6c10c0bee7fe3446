"""Products of parallelisms on eight ranks against one process."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from tests.workloads.reference import Run, assert_same_training, distributed, single_process
from workloads.common.config import preset
from workloads.common.mesh import World
from workloads.common.model import Transformer
from workloads.common.moe import Routing, mixtures, rebalance
from workloads.nd import ND

MICRO_BATCHED = 5e-3  # of parameters: sums over micro-batches round in another order, which Adam magnifies
# At the usual rate one process amplifies a change of its weights by 1e-7 to 2.4e-5 of its ninth loss.
LR = 1e-3
MIXTURE_FLAGS = ("--experts", "4", "--top-k", "2", "--balance", "bias", "--bias-rate", "0.01")

DENSE_MESHES = [  # (layers, mesh, …)
    (2, "dp_replicate=2,dp_shard=2,tp=2"),
    (2, "dp_replicate=2,dp_shard=2,cp=2", "--impl", "allgather"),
    (2, "dp_shard=2,cp=2,tp=2", "--accumulate", "2"),
    (2, "dp_shard=2,cp=2,tp=2", "--impl", "ulysses", "--no-sequence-parallel", "--no-loss-parallel"),
    (2, "cp=4,tp=2", "--ulysses", "2", "--accumulate", "2"),
    (2, "dp_replicate=4,tp=2"),
    (2, "dp_shard=8"),
    (2, "pp=2,dp_shard=2,tp=2", "--accumulate", "2"),
    (4, "pp=2,dp_replicate=2,dp_shard=2", "--schedule", "Interleaved1F1B", "--accumulate", "2"),
    (4, "pp=2,dp_shard=2,cp=2", "--schedule", "ZBVZeroBubble", "--accumulate", "2"),
    (2, "pp=2,cp=2,tp=2", "--schedule", "GPipe", "--accumulate", "2"),
    (2, "pp=2,dp_replicate=2,tp=2", "--accumulate", "2"),
    (4, "pp=4,tp=2", "--accumulate", "4"),
    (4, "pp=4,dp_shard=2", "--accumulate", "4"),
]
MIXTURE_MESHES = [
    ("dp_shard=4,cp=2,ep=4",),
    ("dp_replicate=2,dp_shard=2,cp=2,ep=4", "--accumulate", "2"),
    ("dp_shard=4,tp=2,ep=4",),
    ("pp=2,dp_shard=4,ep=2", "--accumulate", "2"),
    ("pp=2,dp_shard=2,tp=2,ep=4", "--accumulate", "2"),
    ("pp=2,dp_replicate=2,dp_shard=2,ep=2", "--accumulate", "2"),
]


@cache
def dense(layers: int) -> Run:
    return single_process(preset("debug", layers=layers), lr=LR)


@cache
def mixture() -> Run:
    def prepare(model: Transformer) -> None:
        for moe in mixtures(model):
            moe.router.routing = Routing("bias", bias_rate=0.01)

    config = preset("debug", layers=2, experts=4, top_k=2)
    return single_process(config, lr=LR, prepare=prepare, after_backward=rebalance)


def on_mesh(layers: int, mesh: str, *flags: str) -> Run:
    return distributed(ND, mesh, "--layers", str(layers), "--accumulate", "1", "--lr", str(LR), *flags)


@pytest.mark.parametrize("case", DENSE_MESHES, ids=lambda case: " ".join(case[1:]))
def test_dense(case: tuple[int, str]) -> None:
    assert_same_training(on_mesh(*case), dense(case[0]), parameter=MICRO_BATCHED)


@pytest.mark.parametrize("case", MIXTURE_MESHES, ids=" ".join)
def test_mixture_of_experts(case: tuple[str, ...]) -> None:
    mesh, *flags = case
    assert_same_training(on_mesh(2, mesh, *MIXTURE_FLAGS, *flags), mixture(), parameter=MICRO_BATCHED)


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
