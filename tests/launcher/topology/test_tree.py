"""Domains: merged where they cannot be told apart, left out where they cross; switches above hosts."""

from __future__ import annotations

from dataclasses import replace

from launcher.slurm.topology import parse_topology as parse_network
from launcher.topology import Device, HostTopology, Link
from launcher.topology.switches import switch_paths, with_switches
from launcher.topology.tree import domain_tree

TREE = "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\nSwitchName=spine Switches=leaf[1-2]\n"


def pair_host(name: str, numa: tuple[int, int, int, int]) -> HostTopology:
    """Two NVLink pairs, (0,1) and (2,3)."""
    devices = tuple(Device(i, f"GPU{i}", numa=numa[i]) for i in range(4))
    return HostTopology(name, devices, links=(Link("GPU0", "GPU1", "NV", 4), Link("GPU2", "GPU3", "NV", 4)))


def test_equal_levels_become_one() -> None:
    assert domain_tree([pair_host("n1", (0, 0, 1, 1))]).lines() == [
        "host n1",
        "  NVLink = NUMA 0: GPU0 GPU1",
        "  NVLink = NUMA 1: GPU2 GPU3",
    ]


def test_a_numa_node_that_crosses_a_pair_is_left_to_the_matrix() -> None:
    lines = domain_tree([pair_host("n1", (0, 1, 0, 1))]).lines()
    assert [line.strip() for line in lines] == ["host n1", "NVLink: GPU0 GPU1", "NVLink: GPU2 GPU3"]


def test_switches_lie_above_hosts() -> None:
    paths = switch_paths(parse_network(TREE))
    assert paths["n3"] == ("spine", "leaf2")
    hosts = with_switches([pair_host(f"n{i}", (0, 0, 0, 0)) for i in (1, 3)], paths)
    names = [child.names for child in domain_tree(hosts).children]
    assert all(any(name.startswith("host") for name in both) and any("leaf" in n for n in both) for both in names)


def test_a_host_that_the_network_does_not_list_gets_a_gap() -> None:
    host = with_switches([replace(pair_host("x9", (0, 0, 0, 0)))], switch_paths(parse_network(TREE)))[0]
    assert host.switches == () and "does not list" in host.gaps[-1]


def test_a_fat_tree_has_one_step_for_all_its_spines() -> None:
    text = TREE.replace("SwitchName=spine Switches=leaf[1-2]\n", "") + "".join(
        f"SwitchName=s{i} Switches=leaf[1-2]\n" for i in range(2)
    )
    assert switch_paths(parse_network(text))["n1"] == ("s0+s1", "leaf1")
