"""Placement equals brute force, is never worse than index order and never worse than Megatron's order."""

from __future__ import annotations

import random

import pytest

from launcher.placement import Placement, place
from launcher.placement.axes import megatron_order
from launcher.spec import AXES, MeshSpec
from launcher.topology import HostTopology
from tests.launcher.placement.brute import Oracle, Place, best_partition
from tests.launcher.placement.hosts import corpus, factorisations, needs_corpus, random_host

CORPUS = list(corpus())
OF_EIGHT = [entry for entry in CORPUS if len(entry[1].devices) == 8]


def meshes(size: int) -> list[MeshSpec]:
    """All factorisations into up to three axes, named so that tp is innermost."""
    return [MeshSpec(dict(zip(AXES[-len(f) :], f, strict=True))) for f in factorisations(size) if f]


def places_of(answer: Placement, hosts: list[HostTopology]) -> list[Place]:
    names = [host.host for host in hosts]
    return [(names.index(node.host), index) for node in answer.nodes for index in node.indexes]


def assert_optimal(mesh: MeshSpec, hosts: list[HostTopology], per_node: int) -> None:
    """The costs are the best ones up to the two percent below which index order is kept."""
    oracle = Oracle(hosts, per_node)
    answer = place(mesh, hosts, per_node, axes_free=False)
    costs, best = oracle.costs(mesh, places_of(answer, hosts)), oracle.best(mesh)
    assert costs == pytest.approx(best), (mesh, costs, best)
    assert answer.report.exact


@needs_corpus
@pytest.mark.parametrize(("name", "host", "expected"), CORPUS, ids=[entry[0] for entry in CORPUS])
def test_pairs_and_quads_of_the_handed_matrices(name: str, host: HostTopology, expected: dict[str, dict]) -> None:
    for key, size in (("tp2", 2), ("tp4", 4)):
        if key not in expected:
            continue
        count = len(host.devices)
        answer = place(
            MeshSpec({"dp_replicate": count // size, "tp": size}), [host], count, False, leftover="dp_replicate"
        )
        oracle = Oracle([host], count)
        rings = [oracle.ring(0, tuple(sorted(group))) for group in answer.groups()["tp"]]
        assert min(rings) == expected[key]["best_ring_gbps"] == best_partition(host, size)
        assert answer.report.axes[0].index_order_gbps == expected[key]["index_order_ring_gbps"]


@needs_corpus
@pytest.mark.parametrize("mesh", meshes(8), ids=str)
def test_eight_devices_equal_brute_force(mesh: MeshSpec) -> None:
    seen = set()
    for _, host, _ in OF_EIGHT:
        kinds = tuple(link.printed for link in host.device_links)
        if kinds not in seen:
            seen.add(kinds)
            assert_optimal(mesh, [host], 8)


@pytest.mark.parametrize("size", [2, 3, 4, 6])
@pytest.mark.parametrize("seed", range(5))
def test_one_axis_of_twelve_devices_equals_the_best_partition(size: int, seed: int) -> None:
    host = random_host("n1", 12, random.Random(seed))
    answer = place(MeshSpec({"dp_replicate": 12 // size, "tp": size}), [host], 12, False, leftover="dp_replicate")
    tp = next(axis for axis in answer.report.axes if axis.axis == "tp")
    assert tp.chosen_gbps == pytest.approx(best_partition(host, size))


@pytest.mark.parametrize("seed", range(500))
def test_two_level_clusters_equal_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    nodes, per_node = rng.choice([(2, 2), (2, 3), (3, 2), (4, 1), (5, 1), (2, 4), (4, 2), (6, 1)])
    hosts = [random_host(f"n{i}", per_node, rng, (f"leaf{rng.randint(0, 1)}",)) for i in range(nodes)]
    choices = [mesh for mesh in meshes(nodes * per_node) if "pp" not in mesh.degrees or rng.random() < 0.5]
    assert_optimal(rng.choice(choices), hosts, per_node)


@pytest.mark.parametrize("seed", range(40))
def test_a_host_with_devices_to_spare_gives_the_best_ones(seed: int) -> None:
    host = random_host("n1", 6, random.Random(seed))
    assert_optimal(MeshSpec({"dp_shard": 2, "tp": 2}), [host], 4)


@pytest.mark.parametrize("seed", range(10))
def test_never_worse_than_index_order_nor_megatron(seed: int) -> None:
    rng = random.Random(seed)
    hosts = [random_host(f"n{i}", 8, rng, (f"spine{i % 2}", f"leaf{i % 3}")) for i in range(4)]
    names = list(AXES)
    rng.shuffle(names)
    mesh = MeshSpec(dict(zip(names, rng.choice([(2, 2, 2, 4), (4, 8), (2, 16), (8, 2, 2)]), strict=False)))
    oracle = Oracle(hosts, 8)
    index: list[Place] = [(node, at) for node in range(4) for at in range(8)]
    fixed = place(mesh, hosts, 8, axes_free=False)
    free = place(mesh, hosts, 8, axes_free=True)
    megatron = megatron_order(mesh)
    slack = 1.0001
    assert oracle.costs(mesh, places_of(fixed, hosts)) <= tuple(c * slack for c in oracle.costs(mesh, index))
    assert oracle.costs(free.mesh, places_of(free, hosts)) <= tuple(c * slack for c in oracle.costs(megatron, index))
