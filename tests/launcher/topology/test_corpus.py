"""All handed outputs against what a careful reader found in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from launcher.cli.topo import topo
from launcher.topology.parse import parse_topology

SHARED = Path(__file__).parents[4] / "shared"
EXPECTED = json.loads((SHARED / "topo" / "expected.json").read_text()) if (SHARED / "topo").is_dir() else {}
needs_shared = pytest.mark.skipif(not EXPECTED, reason="the handed outputs (shared/topo) are not here")


@needs_shared
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_devices_components_and_kinds(name: str) -> None:
    expected = EXPECTED[name]
    found = parse_topology((SHARED / "topo" / name).read_bytes().decode(errors="replace"))
    if not expected["gpus"]:
        assert found.devices, "the careful reader's notes are silent on other vendors; devices are there all the same"
        return
    assert len(found.devices) == expected["gpus"]
    assert [list(component) for component in found.components] == expected["nvlink_components"]
    assert sorted({link.printed for link in found.device_links}) == expected["links"]
    assert len(found.nics) == expected["nics"]
    assert any("without a row" in gap for gap in found.gaps) or expected["complete_gpu_rows"]


@needs_shared
@pytest.mark.parametrize(
    ("name", "devices", "kinds"),
    [
        ("029-rocm-smi-4gpu-pcie.txt", 4, {"PCIE"}),
        ("033-mi300x-amdsmi-topology.txt", 8, {"XGMI"}),
        ("035-mi300-tpx-broken-rocm-smi.txt", 12, {"XGMI"}),
        ("049-rocm-smi-8gpu-xgmi-azure.txt", 8, {"XGMI"}),
        ("059-intel-max1100-xl24.txt", 2, {"XL24"}),
    ],
)
def test_other_vendors(name: str, devices: int, kinds: set[str]) -> None:
    found = parse_topology((SHARED / "topo" / name).read_text())
    assert len(found.devices) == devices
    assert {link.printed for link in found.device_links} == kinds


@needs_shared
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("039-8xv100-vm-phb.txt", "a virtual machine hides"),
        ("051-k80-soc-cpuset-0-3.txt", "cpuset of a job"),
        ("043-princeton-della-h100-blank-cpu.txt", "cpuset of a job"),
        ("067-76nics-preamble-truncated.txt", "20 of 76 NICs"),
        ("035-mi300-tpx-broken-rocm-smi.txt", "node and affinity disagree"),
        ("007-4xh100-nv18-8nic-phb-vm.txt", "which NIC is near"),
    ],
)
def test_what_is_not_known_is_said(name: str, words: str) -> None:
    found = parse_topology((SHARED / "topo" / name).read_text())
    assert any(words in gap for gap in found.gaps), found.gaps


@needs_shared
def test_node_outputs_that_look_like_topologies() -> None:
    system = SHARED / "system"
    lone = parse_topology((system / "008-nvidia-smi-topo-m-ansi.txt").read_text()).devices
    assert [(device.name, device.cpus, device.numa) for device in lone] == [("GPU0", "0-23", 0)]
    peers = parse_topology((system / "051-nvidia-smi-topo-p2p-gns.txt").read_text())
    assert {status for _, _, status in peers.p2p} == {"GNS"} and not peers.links
    nics = parse_topology((system / "057-ibdev2netdev-mixed.txt").read_text()).nics
    assert {nic.name for nic in nics if nic.up} == {"mlx5_1", "mlx5_bond_0"}
    assert not any(nic.up is False for nic in nics)


@needs_shared
def test_the_document_of_a_tree_and_of_blocks() -> None:
    for name in (
        "042-topology-tree-nebius.txt",
        "043-topology-conf-block-azure.txt",
        "045-topology-conf-tree-docs.txt",
    ):
        done = CliRunner().invoke(topo, [str(SHARED / "slurm" / name), "--json"])
        document = json.loads(done.output)
        expected = json.loads((SHARED / "slurm" / "expected.json").read_text())[name]
        assert done.exit_code == 0
        if "switches" in expected:
            assert document["switches"] == expected["switches"]
        if "blocks" in expected:
            assert {block: len(nodes) for block, nodes in document["blocks"].items()} == expected["blocks"]
        for leaf, nodes in expected.get("leaf_nodes", {}).items():
            assert document["switches"][leaf]["nodes"] == nodes
