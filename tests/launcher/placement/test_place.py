"""Rules of placement: what is kept, what is left out, what is said."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from launcher.cli.place import place as command
from launcher.errors import InputError
from launcher.placement import Network, place
from launcher.placement.cost import Volume
from launcher.placement.request import PlaceRequest, shape
from launcher.spec import MeshSpec
from launcher.topology import HostTopology, Link
from tests.launcher.placement.hosts import CORPUS, host, needs_corpus, random_host, uniform_host

PAIRS = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n" + "".join(
    "\t".join([f"GPU{a}", *("X" if a == b else "NV4" if abs(a - b) == 2 else "PHB" for b in range(4)), "0-7", "0"])
    + "\n"
    for a in range(4)
)


def invoke(*args: object) -> Result:
    return CliRunner().invoke(command, [str(arg) for arg in args], catch_exceptions=True)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "n1"
    file.write_text(PAIRS)
    return file


def test_the_document_of_pairs_that_index_order_tears_apart(pairs: Path) -> None:
    document = json.loads(invoke("--topo", pairs, "--mesh", "tp=2", "--json").output)
    assert document["axes"] == ["dp_replicate", "tp"]
    assert document["groups"]["tp"] == [[0, 2], [1, 3]]
    cost = document["cost"]
    assert cost["index_order"] / cost["chosen"] == pytest.approx(80 / 18)
    assert cost["lower_bound"] == cost["chosen"]
    assert document["limiting"] == {"axis": "tp", "link": "GPU0-GPU2 NV4"}
    assert [rank["device"] for rank in document["ranks"]] == [0, 2, 1, 3]
    assert document["ranks"][1]["coordinate"] == {"dp_replicate": 0, "tp": 1}


@needs_corpus
def test_the_handed_file_of_nonadjacent_pairs_gains_4_4_times() -> None:
    file = CORPUS / "027-4x3090-nvlink-nonadjacent-pairs.txt"
    cost = json.loads(invoke("--topo", file, "--mesh", "tp=2", "--json").output)["cost"]
    assert cost["index_order"] / cost["chosen"] == pytest.approx(4.44, abs=0.01)


def test_people_read_factor_limit_and_binding(pairs: Path) -> None:
    text = invoke("--topo", pairs, "--mesh", "tp=2").output
    assert "tp is 4.44 times faster than in index order" in text
    assert "limited by GPU0-GPU2 NV4" in text and "NUMA 0, CPUs 0-7" in text


def test_index_order_is_kept_where_nothing_is_gained() -> None:
    answer = place(MeshSpec({"dp_shard": 4, "tp": 2}), [uniform_host("n1", 8)], 8, axes_free=True)
    assert answer.nodes[0].indexes == tuple(range(8))
    assert answer.report.verdict.startswith("no gain")


def test_devices_are_given_by_uuid_in_local_rank_order() -> None:
    kinds = [[("NV", 4) if abs(a - b) == 2 else ("PHB", 1) for b in range(4)] for a in range(4)]
    node = place(MeshSpec({"dp_shard": 2, "tp": 2}), [host("n1", kinds)], 4, axes_free=False).nodes[0]
    assert node.devices == ("GPU-n1-0", "GPU-n1-2", "GPU-n1-1", "GPU-n1-3")


def test_busy_and_excluded_devices_stay_free() -> None:
    whole = uniform_host("n1", 8)
    busy = replace(whole, devices=tuple(replace(d, busy=d.index == 0) for d in whole.devices))
    answer = place(MeshSpec({"tp": 4}), [busy], 4, False, excluded=["n1:GPU1", "GPU-n1-2"])
    assert not {0, 1, 2} & set(answer.nodes[0].indexes)


def test_too_few_devices_are_named() -> None:
    with pytest.raises(InputError, match=r"needs 2 hosts with 8 free devices, there are 1 \(n2 has 4\)"):
        place(MeshSpec({"tp": 16}), [uniform_host("n1", 8), uniform_host("n2", 4)], 8, False)


def test_a_host_of_another_size_gives_what_is_asked_for() -> None:
    answer = place(MeshSpec({"dp_shard": 2, "tp": 4}), [uniform_host("n1", 8), uniform_host("n2", 4)], 4, False)
    assert {node.host for node in answer.nodes} == {"n1", "n2"}


def test_nodes_of_one_leaf_stay_together() -> None:
    hosts = [uniform_host(f"n{i}", 8, ("spine", f"leaf{i % 2}")) for i in range(8)]
    answer = place(MeshSpec({"dp_replicate": 2, "dp_shard": 32}), hosts, 8, False, network=Network(8, 50.0))
    leaves = [int(node.host[1:]) % 2 for node in answer.nodes]
    assert leaves in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)
    shard = next(axis for axis in answer.report.axes if axis.axis == "dp_shard")
    assert shard.chosen_gbps > shard.index_order_gbps


def test_hosts_to_spare_are_taken_from_one_leaf() -> None:
    hosts = [uniform_host(f"n{i}", 8, (f"leaf{i // 3}",)) for i in range(9)]
    random.Random(1).shuffle(hosts)
    answer = place(MeshSpec({"dp_shard": 24}), hosts, 8, False, network=Network(8, 50.0))
    assert len({int(node.host[1:]) // 3 for node in answer.nodes}) == 1


def test_an_nvlink_fabric_over_hosts_beats_its_nics() -> None:
    def tray(name: str, clique: str) -> HostTopology:
        plain = uniform_host(name, 4)
        return replace(plain, devices=tuple(replace(d, fabric=f"c/{clique}") for d in plain.devices))

    hosts = [tray(f"n{i}", str(i % 2)) for i in range(8)]
    answer = place(MeshSpec({"dp_shard": 2, "tp": 16}), hosts, 4, False)
    tp = next(axis for axis in answer.report.axes if axis.axis == "tp")
    assert tp.chosen_gbps == 360.0 and tp.index_order_gbps < 100
    assert len({int(node.host[1:]) % 2 for node in answer.nodes[:4]}) == 1


def with_rails(name: str, order: list[int]) -> HostTopology:
    """Device i is next to NIC order[i]."""
    plain = uniform_host(name, 4, nics=4)
    near = tuple(Link(f"GPU{d}", f"mlx5_{n}", "PIX" if order[d] == n else "SYS") for d in range(4) for n in range(4))
    return replace(plain, links=(*plain.links, *near))


def test_rails_pair_across_nodes_whose_devices_are_numbered_otherwise() -> None:
    hosts = [with_rails(f"n{i}", order) for i, order in enumerate([[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2]])]
    more = [with_rails(f"n{i}", [0, 1, 2, 3]) for i in range(3, 8)]  # above 16 devices: packed
    answer = place(MeshSpec({"dp_replicate": 8, "tp": 4}), [*hosts, *more], 4, False)
    rails = {"n0": [0, 1, 2, 3], "n1": [3, 2, 1, 0], "n2": [1, 0, 3, 2]}
    used = [[rails.get(node.host, [0, 1, 2, 3])[i] for i in node.indexes] for node in answer.nodes]
    assert all(row == used[0] for row in used)


def test_traffic_decides_which_axis_matters() -> None:
    kinds = [[("NV", 4) if abs(a - b) == 2 else ("NV", 1) for b in range(4)] for a in range(4)]
    mesh = MeshSpec({"dp_shard": 2, "tp": 2})
    by_tp = place(mesh, [host("n1", kinds)], 4, False, traffic={"tp": Volume(8e9), "dp_shard": Volume(1e9)})
    by_data = place(mesh, [host("n1", kinds)], 4, False, traffic={"tp": Volume(1e9), "dp_shard": Volume(8e9)})
    assert by_tp.nodes[0].indexes == (0, 2, 1, 3)
    assert by_data.nodes[0].indexes == (0, 1, 2, 3)
    assert by_tp.report.chosen == pytest.approx(8 / 80 + 1 / 20)


def test_another_order_of_axes_is_used_if_free_and_told_if_not() -> None:
    hosts = [uniform_host(f"n{i}", 8) for i in range(4)]
    mesh = MeshSpec({"tp": 4, "dp_shard": 8})
    fixed = place(mesh, hosts, 8, axes_free=False, network=Network(8, 50.0))
    free = place(mesh, hosts, 8, axes_free=True, network=Network(8, 50.0))
    assert fixed.mesh == mesh and any("DLAUNCH_MESH" in note for note in fixed.report.notes)
    assert free.mesh.axes == ("dp_shard", "tp") and free.report.gain > 2


def test_experts_stay_in_their_host() -> None:
    hosts = [uniform_host(f"n{i}", 8) for i in range(2)]
    answer = place(MeshSpec({"dp_shard": 16, "ep": 8}), hosts, 8, False, network=Network(8, 50.0))
    assert next(axis for axis in answer.report.axes if axis.axis == "ep").chosen_gbps == 360.0


def test_hosts_without_accelerators_have_ranks_and_no_devices() -> None:
    answer = place(MeshSpec({"dp_replicate": 4, "dp_shard": 2}), [HostTopology(f"n{i}") for i in range(4)], 2, False)
    assert [node.devices for node in answer.nodes] == [()] * 4
    assert [rank["device"] for rank in answer.to_json()["ranks"]] == [0, 1] * 4


def test_more_than_sixteen_devices_are_packed_by_their_links() -> None:
    kinds = [[("NV", 4) if a % 6 == b % 6 else ("PHB", 1) for b in range(24)] for a in range(24)]
    answer = place(MeshSpec({"dp_shard": 6, "tp": 4}), [host("n1", kinds)], 24, False)
    assert next(axis for axis in answer.report.axes if axis.axis == "tp").chosen_gbps == 80.0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--mesh", "tp=64"], "64 ranks, there are 4 devices"),
        (["--mesh", "tp=2", "--traffic", "cp=1"], "no axis"),
        (["--mesh", "tp=2", "--traffic", "tp=much"], "not AXIS=BYTES"),
        (["--mesh", "tp=2", "--traffic", "tp=1", "--batch", "8"], "--batch: it is for the traffic of a preset"),
        (["--mesh", "tp=2", "--cluster", "gpus"], "leave out --cluster and --inventory"),
    ],
)
def test_wrong_options_are_named(pairs: Path, args: list[str], words: str) -> None:
    done = invoke("--topo", pairs, *args)
    assert isinstance(done.exception, InputError) and words in str(done.exception)


def test_a_file_without_topology_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing here\n")
    done = invoke("--topo", tmp_path / "x", "--mesh", "tp=2")
    assert isinstance(done.exception, InputError) and "no topology in it" in str(done.exception)


@pytest.mark.parametrize(
    ("mesh", "per_node", "nodes"),
    [
        ("tp=4,cp=3,dp_shard=2,pp=2", 8, 6),
        ("tp=6,dp_shard=3,pp=2", 4, 9),
        ("dp_shard=10,cp=6", 20, 3),
        ("pp=8,dp_replicate=5", 20, 2),
    ],
)
def test_axes_that_do_not_end_at_a_host_are_placed_too(mesh: str, per_node: int, nodes: int) -> None:
    hosts = [random_host(f"n{i}", per_node, random.Random(i), (f"leaf{i % 2}",)) for i in range(nodes)]
    answer = place(MeshSpec.parse(mesh), hosts, per_node, axes_free=False)
    assert all(sorted(node.indexes) == list(range(per_node)) for node in answer.nodes)
    assert answer.report.chosen <= answer.report.index_order


def test_unequal_hosts_keep_the_innermost_axis_whole_and_lose_few_devices() -> None:
    sizes = [uniform_host("n1", 8), uniform_host("n2", 3), uniform_host("n3", 4)]

    def chosen(mesh: str, **options: Any) -> tuple[int, int]:
        return shape(PlaceRequest(mesh, **options), MeshSpec.parse(mesh), sizes)

    assert chosen("tp=2") == (4, 2)  # as many as on the first host alone, and no host with an odd device
    assert chosen("tp=4") == (4, 2)
    assert chosen("tp=8") == (8, 1)
    assert chosen("tp=4", exclude=["n3:GPU0"]) == (8, 1)
    assert chosen("tp=3") == (3, 3)
    assert chosen("tp=2", nodes=3) == (2, 3)
