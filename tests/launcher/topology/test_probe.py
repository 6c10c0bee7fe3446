"""Probing this machine through the hosts protocol, with programs on PATH that answer as the vendor's do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.hosts.local import LocalHost
from launcher.jobs.devices import free_devices
from launcher.topology.model import HostTopology
from launcher.topology.probe import probe, read_probe
from tests.lab.fake_nvidia_smi import install

MATRIX = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-1\t0\nGPU1\tNV4\t X \t0-1\t0\n"
DEVICES = [
    {"index": i, "uuid": f"GPU-{i}", "pci.bus_id": f"00000000:{i + 10:02X}:00.0", "name": "NVIDIA H100"} for i in (0, 1)
]


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def here() -> HostTopology:
    host = LocalHost("n1")
    try:
        return probe(host)
    finally:
        host.close()


def test_identity_and_use_come_with_the_matrix(look: Path) -> None:
    fabric = {"fabric.clusterUuid": "c1", "fabric.cliqueId": 3}
    install(look, MATRIX, [{**device, **fabric} for device in DEVICES], apps=[{"gpu_uuid": "GPU-1", "pid": 5}])
    found = here()
    assert [(d.uuid, d.bdf, d.numa, d.busy, d.fabric) for d in found.devices] == [
        ("GPU-0", "0000:0a:00.0", 0, False, "c1/3"),
        ("GPU-1", "0000:0b:00.0", 0, True, "c1/3"),
    ]
    assert [link.printed for link in found.links] == ["NV4"] and found.numa_cpus


def test_an_old_driver_without_fabric_fields_is_no_gap(look: Path) -> None:
    install(look, MATRIX, DEVICES, new_driver=False)
    found = here()
    assert [device.uuid for device in found.devices] == ["GPU-0", "GPU-1"] and found.gaps == ()


def test_a_failing_driver_is_a_gap_with_its_words(look: Path) -> None:
    program = look / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\necho "NVIDIA-SMI has failed because it couldn\'t communicate with the driver."\nexit 9\n'
    )
    program.chmod(0o755)
    found = here()
    assert found.devices == () and any("couldn't communicate" in gap for gap in found.gaps)


def test_sysfs_facts_join_the_matrix() -> None:
    text = (
        "@@dlaunch matrix\n\tGPU0\tmlx5_0\tCPU Affinity\nGPU0\tX\tPIX\t0-3\nmlx5_0\tPIX\tX\n@@dlaunch sysfs\n"
        "numa 0 0-3\nnuma 1 4-7\nallowed 0-7\n"
        "rdma mlx5_0 0000:18:00.0 0 4:_ACTIVE 400_Gb/sec_(4X_NDR) ib0\nnet ib0 0000:18:00.0 0 up 400000\n"
        "net eth0 virtio2 -1 up -1\n"
    )
    found = read_probe(text, "n1")
    ib, eth = found.nics
    assert (ib.up, ib.gbps, ib.numa, ib.netdev) == (True, 400.0, 0, "ib0")
    assert (eth.label, eth.rdma, eth.gbps, eth.numa) == ("eth0", False, None, None)
    assert found.numa_cpus == {0: "0-3", 1: "4-7"}


ROCM = """@@dlaunch tool rocm-smi
@@dlaunch matrix
=============================== Link Type between two GPUs ===============================
       GPU0         GPU1         GPU2
GPU0   0            XGMI         PCIE
GPU1   XGMI         0            PCIE
GPU2   PCIE         PCIE         0
@@dlaunch query
device,Unique ID,PCI Bus
card0,0x18f68e602b8a5ba9,0000:29:00.0
card1,0x9c5,0000:2C:00.0
card2,N/A,0000:2F:00.0
@@dlaunch sysfs
"""


def test_rocm_devices_are_known_by_their_unique_id_and_given_by_rocrs_variable() -> None:
    found = read_probe(ROCM, "n1")
    assert [device.handle for device in found.devices] == ["GPU-18f68e602b8a5ba9", "GPU-00000000000009c5", "2"]
    assert [device.bdf for device in found.devices] == ["0000:29:00.0", "0000:2c:00.0", "0000:2f:00.0"]
    assert found.visible_variable == "ROCR_VISIBLE_DEVICES" and not found.gaps


def test_on_other_vendors_devices_nothing_is_started() -> None:
    ascend = "@@dlaunch tool npu-smi\n@@dlaunch matrix\n NPU0 NPU1\nNPU0 X HCCS\nNPU1 HCCS X\n@@dlaunch sysfs\n"
    found = read_probe(ascend, "n1")
    assert len(found.devices) == 2 and found.visible_variable == "" and free_devices(found) == 0
