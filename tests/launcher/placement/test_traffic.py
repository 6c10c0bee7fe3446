"""Traffic from the command line and from recorders, and measured links in the cost."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.errors import InputError
from launcher.placement import Network, place
from launcher.placement.cost import Objective, Volume
from launcher.placement.measured import Measured, MeasuredLink
from launcher.placement.traffic import count, of_model, parse_traffic
from launcher.spec import MeshSpec
from tests.launcher.placement.hosts import host, uniform_host
from workloads.common.config import PRESETS
from workloads.common.costs import Sizes

MESH = MeshSpec({"dp_shard": 4, "tp": 2})


def test_bytes_and_calls_as_typed() -> None:
    assert parse_traffic("tp=6e9:10,dp_shard=1e9", MESH) == {"tp": Volume(6e9, 20), "dp_shard": Volume(1e9)}
    with pytest.raises(InputError, match="no axis"):
        parse_traffic("pp=1", MESH)


@pytest.mark.parametrize("text", ["tp=x", "tp=nan", "tp=inf", "tp=-1", "tp=1:nan", "tp=1:-2"])
def test_traffic_is_a_finite_amount(text: str) -> None:
    with pytest.raises(InputError, match="is not AXIS=BYTES"):
        parse_traffic(text, MESH)


def entry(group: str, op: str, size: int, time: int, into: int = 1) -> dict[str, Any]:
    """One call in the recorder's form, of `size` float32; `into` times as many come out."""
    return {
        "process_group": (group, ""),
        "profiling_name": f"nccl:{op}",
        "input_sizes": [[size // 2, 2]],
        "output_sizes": [[size * into]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "time_created_ns": time * 10**9,
    }


def test_what_a_recorder_kept_is_counted_by_axis_and_step() -> None:
    calls = [
        piece
        for step in (100, 110, 120)
        for piece in (
            entry("1", "all_reduce", 1000, step),
            entry("1", "all_reduce", 1000, step + 1),
            entry("2", "_all_gather_base", 600, step + 2, into=4),
            entry("0", "barrier", 2, step + 3),
        )
    ]
    groups = {"0": "[0, 1, 2, 3, 4, 5, 6, 7]", "1": "[0, 1]", "2": "[0, 2, 4, 6]"}
    document = {"entries": calls, "pg_config": {name: {"ranks": ranks} for name, ranks in groups.items()}}
    found = count(MESH, {0: (document, None, [50.0, 104.0, 114.0, 123.0, 200.0])}, "job-1")
    assert found.volumes == {"tp": Volume(2 * 4000.0, 4), "dp_shard": Volume(4 * 600 * 4 * 3 / 4, 3)}
    assert found.on(MESH) == found.volumes
    with pytest.raises(InputError, match="job-1 ran on"):
        found.on(MeshSpec({"tp": 8}))


def test_groups_of_a_process_count_before_those_of_its_dump() -> None:
    document = {"entries": [entry("7", "allreduce", 10, 1)], "pg_config": {"": {"name": "", "ranks": "[]"}}}
    view = {"groups": {"7": {"desc": "", "ranks": [0, 1, 2, 3, 4, 5, 6, 7]}}}
    assert count(MESH, {0: (document, view, [])}, "j").volumes == {"dp_shard": Volume(70.0, 14)}  # over both axes


def test_seconds_are_messages_times_alpha_and_bytes_over_bandwidth() -> None:
    objective = Objective({"tp": Volume(2e9, 100)}, {"tp": 5e-6})
    assert objective.seconds("tp", 50.0) == pytest.approx(100 * 5e-6 + 2 / 50)


MANY_SMALL = {"tp": Volume(1e6, 4000), "dp_shard": Volume(9e6, 10)}


def test_many_small_messages_stay_inside_the_node_where_latency_was_measured() -> None:
    """By bandwidth the larger volume belongs inside; by latency the axis with many messages does."""
    hosts = [uniform_host(name, 2) for name in ("n1", "n2")]
    mesh = MeshSpec({"tp": 2, "dp_shard": 2})
    slow_start = Measured(MeasuredLink(1e-6, 300.0, 2), MeasuredLink(50e-6, 25.0, 2))
    network = Network(nics_per_node=2, nic_gbps=25.0)
    by_bytes = place(mesh, hosts, 2, True, traffic=MANY_SMALL, network=network)
    by_time = place(mesh, hosts, 2, True, traffic=MANY_SMALL, network=network, measured=slow_start)
    assert (by_bytes.mesh.axes[-1], by_time.mesh.axes[-1]) == ("dp_shard", "tp")
    assert any("bench comm` measured them: 300 GB/s and 1 µs inside a node" in note for note in by_time.report.notes)


def test_a_measured_ring_scales_the_links_and_keeps_their_proportions() -> None:
    kinds = [[("NV", 4) if (a, b) in ((0, 1), (2, 3)) else ("SYS", 1) for b in range(4)] for a in range(4)]
    plain = place(MeshSpec({"tp": 2}), [host("n1", kinds)], 2, False)
    scaled = place(MeshSpec({"tp": 2}), [host("n1", kinds)], 2, False, measured=Measured(MeasuredLink(0.0, 4.5, 4)))
    assert scaled.nodes == plain.nodes
    assert scaled.report.axes[0].chosen_gbps == pytest.approx(plain.report.axes[0].chosen_gbps / 2)


def test_the_table_tells_a_presets_traffic_as_the_plan_does() -> None:
    """7B over 8: blocks gathered in bfloat16 twice, the root once, all reduced in float32, less an eighth."""
    sizes = Sizes.of(PRESETS["7B"])
    root = sizes.embedding + sizes.output + sizes.root_norms
    found = of_model("7B", MeshSpec({"dp_shard": 8}), None, 4096)
    assert found["dp_shard"].bytes == pytest.approx((sizes.total * (2 + 2 + 4) - root * 2) * 7 / 8, rel=1e-6)
    both = of_model("8B", MeshSpec({"pp": 2, "dp_shard": 2, "tp": 4}), None, 4096)
    assert both.keys() == {"pp", "dp_shard", "tp"} and both["tp"].messages > both["dp_shard"].messages
    with pytest.raises(InputError, match="no axis 'x'"):
        of_model("8B", MeshSpec({"x": 2}), None, 4096)
