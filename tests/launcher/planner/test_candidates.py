"""Which meshes are valid, which way to run each is chosen, and in which order they come."""

from __future__ import annotations

import math
import time

import pytest

from launcher.errors import InputError
from launcher.placement.cluster import Network
from launcher.planner.candidates import candidates, valid_meshes
from launcher.planner.cluster import device_type, equal_nodes, probed_nodes
from launcher.planner.model import from_parameters, from_preset
from launcher.planner.question import Question
from launcher.planner.reasons import reasons
from launcher.topology.model import Device, HostTopology


def ask(preset: str = "8B", nodes: int = 2, device: str = "h100-80g", batch: int = 32, experts: int = 0) -> Question:
    return Question(from_preset(preset, experts), equal_nodes(nodes, 8, device_type(device)), batch, 4096)


def test_every_mesh_uses_all_devices_and_comes_once() -> None:
    meshes = list(valid_meshes(ask(experts=8)))
    assert len({str(mesh) for mesh in meshes}) == len(meshes)
    assert {mesh.world_size for mesh in meshes} == {16}
    assert {"pp", "dp_replicate", "dp_shard", "cp", "tp", "ep"} == {axis for mesh in meshes for axis in mesh.degrees}


def test_degrees_divide_what_they_cut() -> None:
    for mesh in valid_meshes(ask(batch=8, experts=4)):
        degrees = mesh.degrees
        assert 8 % math.prod(degrees.get(axis, 1) for axis in ("dp_replicate", "dp_shard")) == 0
        assert 8 % degrees.get("tp", 1) == 0  # of 8 key-value heads
        assert 4 % degrees.get("ep", 1) == 0


def test_a_mesh_of_one_device_is_a_mesh() -> None:
    machine = equal_nodes(1, 1, device_type("h100-80g"))
    (only,) = candidates(Question(from_preset("1B"), machine, 1, 4096))
    assert only.mesh.world_size == 1
    assert only.time.communication == 0
    assert not only.traffic


def test_those_that_do_not_fit_come_last_and_are_marked() -> None:
    ranked = candidates(ask("70B", nodes=4))
    fits = [each.fits for each in ranked]
    assert fits == sorted(fits, reverse=True)
    assert {True, False} == set(fits)
    assert all(each.fits == (each.memory["total"] <= 80e9) for each in ranked)


def test_no_overlap_and_full_overlap_are_the_ends_of_the_band() -> None:
    for each in candidates(ask(experts=8)):
        step = each.time
        assert step.step == step.compute + step.communication
        assert step.compute <= step.overlapped <= step.step
        assert step.efficiency[0] <= step.efficiency[1] <= 1
        parts = ("parameters", "gradients", "optimizer", "gathered", "activations")
        assert each.memory["total"] == pytest.approx(sum(each.memory[part] for part in parts))


def test_micro_batches_and_checkpointing_are_taken_only_where_memory_needs_them() -> None:
    def shard(batch: int) -> tuple[int, bool]:
        found = next(
            each for each in candidates(ask("8B", 1, batch=batch)) if dict(each.mesh.degrees) == {"dp_shard": 8}
        )
        return found.micro_batches, found.checkpointing

    assert shard(8) == (1, False)
    assert shard(512) != (1, False)


def test_a_model_that_fits_is_not_cut() -> None:
    assert candidates(ask("1B"))[0].cuts == 0


def test_on_a_slow_network_gathers_stay_in_the_node_and_stages_cross_it() -> None:
    machine = equal_nodes(4, 8, device_type("h100-80g"), nics_per_node=1)
    ranked = [dict(each.mesh.degrees) for each in candidates(Question(from_preset("7B"), machine, 32, 4096))]
    assert ranked.index({"dp_replicate": 4, "dp_shard": 8}) < ranked.index({"dp_shard": 32})
    assert ranked[0]["pp"] == 4


def test_tensor_parallelism_stays_inside_a_node() -> None:
    ranked = candidates(ask("70B", nodes=8, batch=64))
    assert ranked[0].mesh.degrees.get("tp", 1) <= 8


def test_reasons_name_every_axis_that_is_used() -> None:
    question = ask("70B", nodes=4)
    ranked = candidates(question)
    text = "\n".join(reasons(question, ranked))
    for axis, degree in ranked[0].mesh.degrees.items():
        assert f"{axis}={degree} " in text
    assert "does not fit on one device" in text


def test_nothing_fits_is_said_with_the_least_that_is_needed() -> None:
    question = ask("70B", nodes=1)
    ranked = candidates(question)
    only, offload = reasons(question, ranked)
    assert "--offload" in offload
    assert str(ranked[0].mesh) in only
    assert ranked[0].memory["total"] == min(each.memory["total"] for each in ranked)


@pytest.mark.parametrize("experts", [0, 16])
def test_1024_devices_take_less_than_five_seconds(experts: int) -> None:
    start = time.process_time()
    assert candidates(ask("70B", nodes=128, batch=1024, experts=experts))
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "memory", "gbps"),
    [("h100-80g", 80e9, 300), ("h200-141g", 141e9, 300), ("a100-40g", 40e9, 200), ("NVIDIA H100 80GB HBM3", 80e9, 300)],
)
def test_device_types_by_our_name_and_by_the_drivers(text: str, memory: float, gbps: float) -> None:
    found = device_type(text)
    assert (found.memory, found.gbps) == (memory, gbps)


def test_an_unknown_device_needs_memory_and_speed() -> None:
    with pytest.raises(InputError, match="h100-80g"):
        device_type("zx81")
    assert device_type("cpu", gigabytes=4, tflops=0.1).flops == 0.1e12


def test_probed_hosts_without_links_are_slower_than_nvlink() -> None:
    devices = tuple(Device(index, f"GPU{index}") for index in range(4))
    machine = probed_nodes([HostTopology("n0", devices)], None, device_type("h100-80g"), Network())
    assert machine.world == 4
    assert machine.gbps("tp", 1, 4) < 300


def test_offload_leaves_what_is_gathered_and_activations_and_costs_copies_over_pcie() -> None:
    """7e9 over 8 devices: 3.5 GB of float32 shards twice to the device and their gradients once back, at 64 GB/s."""
    question = Question(from_parameters(7e9, 32, 4096), equal_nodes(1, 8, device_type("h100-80g")), 8, 4096)
    (found,) = [each for each in candidates(question) if each.mesh.degrees == {"dp_shard": 8}]
    assert found.micro_batches == 1 and found.offload
    assert found.offload.seconds == pytest.approx(3 * 3.5e9 / 64e9)
    assert found.offload.memory == pytest.approx(found.memory["gathered"] + found.memory["activations"])
    assert found.offload.host == pytest.approx(7e9 * 16)
    (whole,) = [each for each in candidates(question) if each.mesh.degrees == {"dp_replicate": 8}]
    assert whole.offload is None


def test_where_nothing_fits_offload_is_offered_if_it_helps() -> None:
    small = Question(from_parameters(7e9, 32, 4096), equal_nodes(1, 2, device_type("l40s-48g")), 2, 1024)
    told = reasons(small, candidates(small))
    assert "no mesh fits" in told[0] and "--offload" in told[1]
