"""The table against the reference values that people know by heart. Bytes are decimal, as there."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from workloads.common.config import PRESETS, ModelConfig, preset
from workloads.common.costs import Case, Sizes, Traffic
from workloads.common.options import Options
from workloads.common.states import PROFILES, ROWS, STATES, WORKLOADS, default_degrees, rows_for
from workloads.common.table import exchanges, faults, placements

SEVEN = Sizes.dense(7e9, layers=32, dim=4096)
GB = 1e9


def case(rows: str, sizes: Sizes = SEVEN, profile: str = "classic", batch: int = 8, **degrees: int) -> Case:
    return Case(sizes, degrees, tuple(rows.split()), batch, 4096, PROFILES[profile])


def static(of: Case) -> float:
    memory = of.memory()
    return memory["parameters"] + memory["gradients"] + memory["optimizer"]


def by_axis(of: Case) -> dict[str, list[Traffic]]:
    axes: dict[str, list[Traffic]] = {}
    for traffic in of.traffic():
        axes.setdefault(traffic.axis, []).append(traffic)
    return axes


@pytest.mark.parametrize(
    ("rows", "degrees", "expected"),
    [
        ("ddp", {"dp_replicate": 8}, 112),
        ("zero3", {"dp_shard": 8}, 14),
        ("zero3", {"dp_shard": 32}, 3.5),
        ("hsdp zero3", {"dp_replicate": 4, "dp_shard": 8}, 14),
    ],
)
def test_static_bytes_of_seven_billion_parameters(rows: str, degrees: dict[str, int], expected: float) -> None:
    assert static(Case(SEVEN, degrees, tuple(rows.split()), 8, 4096, PROFILES["classic"])) == expected * GB


def test_seventy_billion_fit_only_with_tensor_parallelism_across_nodes() -> None:
    seventy = Sizes.dense(70e9, layers=80, dim=8192)
    assert static(case("zero3", seventy, dp_shard=8)) == 140 * GB
    assert static(case("tp_sequence zero3", seventy, dp_shard=4, tp=8)) == 35 * GB


@pytest.mark.parametrize("name", ["classic", "fsdp2", "float32"])
def test_sixteen_bytes_a_parameter_in_every_profile(name: str) -> None:
    profile = PROFILES[name]
    assert profile.parameters + profile.gradients + profile.optimizer == 16


@pytest.mark.parametrize(("shard", "sent"), [(8, 49), (32, 54.25)])
def test_fsdp_gathers_twice_in_bf16_and_reduces_in_fp32(shard: int, sent: float) -> None:
    traffic = case("zero3", profile="fsdp2", batch=32, dp_shard=shard).traffic()
    assert sum(part.logical for part in traffic) == 56 * GB
    assert sum(part.sent for part in traffic) == sent * GB


def test_hsdp_reduces_one_shard_between_nodes() -> None:
    axes = by_axis(case("hsdp zero3", profile="fsdp2", batch=32, dp_replicate=4, dp_shard=8))
    assert sum(part.sent for part in axes["dp_shard"]) == 49 * GB
    (between,) = axes["dp_replicate"]
    assert (between.bytes, between.sent) == (3.5 * GB, 5.25 * GB)


@pytest.mark.parametrize(("parameters", "logical", "sent"), [(7e9, 56e9, 49e9), (37.75e6, 302e6, 264.25e6)])
def test_ddp_all_reduces_fp32_gradients(parameters: float, logical: float, sent: float) -> None:
    (traffic,) = case("ddp", Sizes.dense(parameters, 9, 512), dp_replicate=8).traffic()
    assert traffic.logical == pytest.approx(logical, rel=1e-12)
    assert traffic.sent == pytest.approx(sent, rel=1e-12)


@pytest.mark.parametrize("rows", ["tp", "tp_sequence"])
def test_tensor_parallelism_moves_four_activations_a_layer_in_any_form(rows: str) -> None:
    traffic = case(rows, tp=8).traffic()
    assert sum(part.logical for part in traffic) == 4 * 32 * 2 * 8 * 4096 * 4096 * 2
    assert sum(part.logical for part in traffic) == pytest.approx(68.7e9, rel=1e-3)
    assert sum(part.sent for part in traffic) == pytest.approx(60.1e9, rel=1e-3)


def test_activations_plain_and_checkpointed() -> None:
    plain = case("ddp")
    assert plain.memory()["activations"] == pytest.approx(146e9, rel=1e-3)
    checkpointed = Case(SEVEN, {}, ("ddp",), 8, 4096, checkpointing=True)
    assert checkpointed.memory()["activations"] == pytest.approx(8.6e9 + 4.6e9, rel=5e-3)


def test_zero1_moves_three_times_the_parameters_and_zero2_two() -> None:
    def volume(rows: str) -> float:
        return sum(part.logical for part in case(rows, profile="float32", dp_shard=8).traffic())

    parameters = 7e9 * 4
    assert (volume("zero1"), volume("zero2"), volume("zero3")) == (3 * parameters, 2 * parameters, 3 * parameters)


def test_a_mixture_has_all_experts_parameters_and_k_experts_compute() -> None:
    dense, mixture = Sizes.of(PRESETS["debug"]), Sizes.of(_mixture(experts=64, top_k=2))
    mlp = 3 * 128 * 384
    assert mixture.total - dense.total == 4 * (63 * mlp + 128 * 64)
    assert mixture.active - dense.total == 4 * (mlp + 128 * 64)


def _mixture(**changes: int) -> ModelConfig:
    return preset("debug", **changes)


def test_replicas_of_experts_reduce_each_ones_shard_of_their_gradients() -> None:
    sizes = Sizes.of(_mixture(experts=4))
    degrees = {"dp_replicate": 2, "dp_shard": 4, "ep": 2}
    traffic = by_axis(Case(sizes, degrees, (*rows_for(degrees),), 16, 64))["dp_replicate"]
    experts = traffic[-1]
    assert (experts.calls, experts.bytes) == (4, 4 * (4 * sizes.expert / 2) * 4 / 2)  # 2 expert groups, 2 shards each


def test_every_workload_names_rows_of_the_table_and_every_row_shards_known_states() -> None:
    assert {name for rows in WORKLOADS.values() for name in rows} <= set(ROWS)
    for row in ROWS.values():
        assert set(row.shards) <= set(STATES)


@pytest.mark.parametrize("name", ROWS)
def test_every_formula_has_a_value(name: str) -> None:
    degrees = dict.fromkeys(("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep"), 2) | {"pp": 4}
    for traffic in Case(Sizes.of(_mixture(experts=4)), degrees, (name,), 16, 128, micro_batches=2).traffic():
        assert traffic.calls > 0
        assert traffic.bytes > 0


@pytest.mark.parametrize(
    ("degrees", "rows"),
    [
        ({"dp_replicate": 8}, ("ddp",)),
        ({"dp_replicate": 4, "dp_shard": 2}, ("hsdp", "zero3")),
        ({"dp_replicate": 1, "dp_shard": 2, "tp": 4}, ("zero3", "tp_sequence")),
        ({"pp": 2, "cp": 2, "tp": 2}, ("pp", "zero2", "cp_ring", "tp_sequence")),
    ],
)
def test_rows_for_a_mesh(degrees: dict[str, int], rows: tuple[str, ...]) -> None:
    assert rows_for(degrees) == rows


def test_the_table_is_read_without_torch() -> None:
    code = "import sys, workloads.common.costs, workloads.common.faults; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("part", [placements, exchanges, faults])
def test_the_page_prints_the_table_as_it_is(part: Callable[[], list[str]]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
    assert "\n".join(part()) in page


def test_the_page_names_no_flag_that_is_not_there() -> None:
    page = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
    table = page.split("## What all of them do")[1].split("## Drills")[0]
    known = {f"--{entry.name.replace('_', '-')}" for entry in fields(Options)}
    assert set(re.findall(r"--[a-z]+[a-z-]*", table)) <= known


def test_every_workload_has_a_default_mesh_of_all_ranks() -> None:
    for workload in WORKLOADS:
        degrees = default_degrees(workload, nodes=4, per_node=2)
        assert math.prod(degree for axis, degree in degrees.items() if axis != "ep") == 8
    assert default_degrees("hsdp", 4, 2) == {"dp_replicate": 4, "dp_shard": 2}
    assert default_degrees("ep", 4, 2) == {"dp_shard": 8, "ep": 2}
