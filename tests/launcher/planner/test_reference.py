"""The values that people know by heart (bytes exactly, times by the ring term alone), through the whole planner."""

from __future__ import annotations

import pytest

from launcher.planner.candidates import Candidate, candidates
from launcher.planner.cluster import device_type, equal_nodes
from launcher.planner.memory import checkpoint, device_memory
from launcher.planner.model import Model, from_parameters, from_preset
from launcher.planner.question import Question, case_of
from launcher.planner.time import collective_seconds
from launcher.spec import MeshSpec
from workloads.common.costs import Traffic
from workloads.common.pipeline_theory import bubble_formula
from workloads.common.states import Exchange

GB = 1e9
SEVEN = from_parameters(7e9, 32, 4096)
SEVENTY = from_parameters(70e9, 80, 8192)


def ask(model: Model = SEVEN, nodes: int = 1, batch: int = 8, nics: int = 8, profile: str = "fsdp2") -> Question:
    machine = equal_nodes(nodes, 8, device_type("h100-80g"), nics, 400.0)
    return Question(model, machine, batch, 4096, profile)


def answer(question: Question, mesh: str) -> Candidate:
    wanted = dict(MeshSpec.parse(mesh).degrees)
    return next(each for each in candidates(question) if each.mesh.degrees == wanted)


def static(candidate: Candidate) -> float:
    return sum(candidate.memory[state] for state in ("parameters", "gradients", "optimizer"))


@pytest.mark.parametrize(
    ("nodes", "mesh", "expected"),
    [
        (1, "dp_replicate=8", 112 * GB),
        (1, "dp_shard=8", 14 * GB),
        (4, "dp_shard=32", 3.5 * GB),
        (4, "dp_replicate=4,dp_shard=8", 14 * GB),
    ],
)
def test_static_bytes_of_seven_billion_parameters(nodes: int, mesh: str, expected: float) -> None:
    found = answer(ask(nodes=nodes, batch=32, profile="classic"), mesh)
    assert static(found) == expected
    assert found.fits == (expected < 80 * GB)


def test_seventy_billion_do_not_fit_into_one_node_but_with_tp_over_four() -> None:
    alone = answer(ask(SEVENTY), "dp_shard=8")
    assert (static(alone), alone.fits) == (140 * GB, False)
    spread = answer(ask(SEVENTY, nodes=4, batch=32), "dp_shard=4,tp=8")
    assert (static(spread), spread.fits) == (35 * GB, True)


@pytest.mark.parametrize(
    ("nodes", "nics", "mesh", "axis", "logical", "sent", "seconds"),
    [
        (1, 8, "dp_shard=8", "dp_shard", 56 * GB, 49 * GB, 49 / 300),
        (4, 1, "dp_shard=32", "dp_shard", 56 * GB, 54.25 * GB, 1.085),
        (4, 8, "dp_replicate=4,dp_shard=8", "dp_shard", 56 * GB, 49 * GB, 49 / 300),
        (4, 8, "dp_replicate=4,dp_shard=8", "dp_replicate", 7 * GB, 5.25 * GB, 0.105),
        (4, 1, "dp_replicate=4,dp_shard=8", "dp_replicate", 7 * GB, 5.25 * GB, 0.840),
        (1, 8, "dp_replicate=8", "dp_replicate", 56 * GB, 49 * GB, 49 / 300),
    ],
)
def test_traffic_and_time_of_data_parallelism(
    nodes: int, nics: int, mesh: str, axis: str, logical: float, sent: float, seconds: float
) -> None:
    found = answer(ask(nodes=nodes, batch=8 * nodes, nics=nics), mesh)
    assert found.bytes_by_axis(sent=False)[axis] == logical
    assert found.bytes_by_axis()[axis] == sent
    assert found.time.axes[axis] == pytest.approx(seconds, rel=1e-12)


def test_fsdp_over_four_nodes_with_a_nic_for_each_device() -> None:
    seconds = answer(ask(nodes=4, batch=32), "dp_shard=32").time.axes["dp_shard"]
    assert 0.13 < seconds < 0.185


def test_a_small_model_under_ddp() -> None:
    found = answer(ask(from_parameters(37.75e6, 9, 512, heads=8)), "dp_replicate=8")
    assert found.bytes_by_axis()["dp_replicate"] == pytest.approx(264.25e6, rel=1e-12)
    assert found.time.axes["dp_replicate"] == pytest.approx(0.88e-3, rel=2e-3)


def test_tensor_parallelism_is_all_exposed() -> None:
    found = answer(ask(), "tp=8")
    assert found.bytes_by_axis(sent=False)["tp"] == 4 * 32 * 2 * 8 * 4096 * 4096 * 2
    assert found.bytes_by_axis()["tp"] == pytest.approx(60.1 * GB, rel=1e-3)
    assert found.time.axes["tp"] == pytest.approx(0.200, rel=3e-3)
    assert found.time.overlapped == found.time.step


def test_activations_plain_and_checkpointed() -> None:
    question, mesh = ask(), MeshSpec({"dp_replicate": 1})
    plain = device_memory(question, case_of(question, mesh, 1, False))["activations"]
    checkpointed = device_memory(question, case_of(question, mesh, 1, True))["activations"]
    assert plain == 34 * 32 * 32_768 * 4096
    assert checkpointed == (2 * 32 + 34) * 32_768 * 4096


@pytest.mark.parametrize(("micro_batches", "bubble"), [(4, 3 / 7), (32, 3 / 35)])
def test_bubble_of_four_stages(micro_batches: int, bubble: float) -> None:
    assert bubble_formula(4, 1, micro_batches) == bubble
    found = answer(ask(batch=2 * micro_batches), "pp=4,dp_shard=2")
    assert (found.micro_batches, found.time.bubble) == (micro_batches, bubble)


def test_a_mixture_has_every_experts_parameters_and_two_experts_compute() -> None:
    dense, mixture = SEVEN, from_parameters(7e9, 32, 4096, experts=64, top_k=2)
    mlp, router = 7e9 - 32 * 4 * 4096**2, 32 * 4096 * 64
    assert mixture.sizes.total - dense.sizes.total == pytest.approx(63 * mlp + router)
    assert mixture.sizes.active - dense.sizes.total == pytest.approx(mlp + router)
    assert from_preset("7B", experts=64, top_k=2).sizes.total > 40 * from_preset("7B").sizes.total


def test_a_checkpoint_and_how_often_to_take_one() -> None:
    cost = checkpoint(ask(nodes=4, batch=32), write_gbps=2.0, mtbf_hours=4000.0)
    assert cost.bytes == 28 * GB + 56 * GB
    assert cost.write_s == 42
    assert cost.interval_s == pytest.approx((2 * 42 * 1000 * 3600) ** 0.5)


def test_latency_counts_for_every_step_of_a_ring_and_a_tree_needs_fewer() -> None:
    def one(collective: str) -> Traffic:
        return Traffic("dp_shard", Exchange(collective, "gradients", "", "", ""), 1, 0, 64)  # type: ignore[arg-type]

    assert collective_seconds(one("all_gather"), 100, 1e-6) == pytest.approx(63e-6)
    assert collective_seconds(one("all_reduce"), 100, 1e-6) == pytest.approx(12e-6)
