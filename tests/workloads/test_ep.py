"""Expert parallelism against one process: same losses, gradients and parameters whatever the mesh."""

from __future__ import annotations

import pytest
import torch

from tests.workloads.reference import Run, assert_same_training, distributed, single_process
from workloads.common.config import preset
from workloads.common.model import Transformer
from workloads.common.moe import Routing, mixtures, rebalance
from workloads.ep import EP

CONFIG = preset("debug", layers=2, experts=4, top_k=2)
MIXTURE = ("--experts", "4", "--top-k", "2")
ROUTINGS = {
    "auxiliary": Routing("auxiliary", auxiliary_weight=0.5),
    "bias": Routing("bias", bias_rate=0.05),
    "capacity": Routing("none", capacity=1.25),
}
FLAGS = {
    "auxiliary": ("--balance", "auxiliary", "--auxiliary-weight", "0.5"),
    "bias": ("--balance", "bias", "--bias-rate", "0.05"),
    "capacity": ("--balance", "none", "--capacity", "1.25"),
}


def one_process(name: str) -> Run:
    def prepare(model: Transformer) -> None:
        for moe in mixtures(model):
            moe.router.routing = ROUTINGS[name]

    return single_process(CONFIG, prepare=prepare, after_backward=rebalance)


@pytest.fixture(scope="module")
def references() -> dict[str, Run]:
    return {name: one_process(name) for name in ROUTINGS}


@pytest.mark.parametrize(
    "meshes",
    [
        ("dp_shard=2,ep=2", "dp_shard=2,ep=1", "dp_replicate=2,dp_shard=1"),
        ("dp_shard=4,ep=4", "dp_shard=4,ep=2", "dp_replicate=2,dp_shard=2,ep=2"),
    ],
)
def test_training(references: dict[str, Run], meshes: tuple[str, ...]) -> None:
    cases: list[tuple[str, ...]] = [(meshes[0], *MIXTURE, *FLAGS[name]) for name in FLAGS]
    cases += [(mesh, *MIXTURE, *FLAGS["auxiliary"]) for mesh in meshes[1:]]
    cases.append((meshes[0], *MIXTURE, *FLAGS["capacity"], "--chunks", "2"))
    names = [*FLAGS, *("auxiliary" for _ in meshes[1:]), "capacity"]
    for name, case in zip(names, cases, strict=True):
        assert_same_training(distributed(EP, *case), references[name])


def test_references_differ_by_their_routing(references: dict[str, Run]) -> None:
    last = torch.tensor([run.losses[-1] for run in references.values()])
    assert (last.unsqueeze(0) - last.unsqueeze(1)).abs().fill_diagonal_(1).min() > 1e-4
