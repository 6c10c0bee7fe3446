"""Each check finds its fault, names the host, and is silent without it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from launcher.common.finding import Finding
from launcher.preflight.checks import run_checks
from launcher.preflight.facts import UNLIMITED, HostFacts, Interface, Report
from launcher.topology import HostTopology, Link, Nic
from tests.launcher.preflight.hosts import GIB, NAMES, RESOLVED, four, sound, topology

MIB = 1 << 20
XID = "[  10.0] NVRM: Xid (PCI:0000:3b:00): {}, pid=1, name=python, what happened"
GPU = """
==============NVSMI LOG==============

Driver Version                            : 570.1
CUDA Version                              : 12.8

Attached GPUs                             : 1
GPU 00000000:00:00.0
    {}
"""
LOOPBACK = "127.0.1.1"
HALF_SPEED = Nic("NIC0", "mlx5_0", up=True, gbps=100.0)
BUSY = tuple(replace(device, busy=True) for device in topology("n3").devices)
ACS = "0000:00:01.0 PCI bridge: PLX\n\t\tACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+\n"


def found(hosts: list[HostFacts]) -> list[Finding]:
    return [finding for finding in run_checks(hosts) if finding.code != "unknown"]


def unseen(hosts: list[HostFacts]) -> list[str]:
    return [finding.cause for finding in run_checks(hosts) if finding.code == "unknown"]


def without_link(host: str, a: str, b: str) -> HostTopology:
    whole = topology(host)
    return replace(whole, links=tuple(link for link in whole.links if {link.a, link.b} != {a, b}))


def test_sound_hosts_have_no_finding_and_nothing_unseen() -> None:
    assert run_checks(four()) == []
    assert run_checks([sound()]) == []
    assert run_checks([]) == []


def without(package: str) -> dict[str, str]:
    return {name: version for name, version in sound().versions.items() if name != package}


FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "other torch": ("torch.version_mismatch", {"versions": {**sound().versions, "torch": "2.8.0"}}),
    "no torch": ("preflight.no_torch", {"versions": without("torch")}),
    "no NCCL": ("nccl.version_mismatch", {"versions": without("nvidia-nccl-cu12")}),
    "other NCCL": ("nccl.version_mismatch", {"versions": {**sound().versions, "nvidia-nccl-cu12": "2.26.2"}}),
    "other driver": ("preflight.version_mismatch", {"versions": {**sound().versions, "driver": "550.9"}}),
    "other variable": ("env.mismatch", {"environment": {"NCCL_ALGO": "Ring"}}),
    "small shm": ("init.shm_full", {"shm": {"total": 64 * MIB, "free": 64 * MIB}}),
    "full shm": ("init.shm_full", {"shm": {"total": 256 * GIB, "free": 0}}),
    "few files": ("init.file_descriptors", {"limits": {**sound().limits, "open_files": (256, 65536)}}),
    "fewer files than peers": ("init.file_descriptors", {"limits": {**sound().limits, "open_files": (4096, 4096)}}),
    "locked memory": ("init.memlock", {"limits": {**sound().limits, "memlock": (65536, 65536)}}),
    "full disk": ("host.disk_full", {"disk_free": 10 * MIB}),
    "read-only": ("preflight.not_writable", {"not_writable": "/root: Read-only file system"}),
    "clock": ("preflight.clock_skew", {"clock_offset": -30.0}),
    "loopback": ("bootstrap.loopback_master", {"own_address": LOOPBACK, "resolved": {**RESOLVED, "n3": [LOOPBACK]}}),
    "wrong name": ("bootstrap.name_mismatch", {"resolved": {**RESOLVED, "n1": ["10.9.9.9"]}}),
    "name not known": ("bootstrap.name_mismatch", {"resolved": {**RESOLVED, "n1": []}}),
    "recorder off": ("preflight.recorder_off", {"environment": {"TORCH_FR_BUFFER_SIZE": "0"}}),
    "no ptrace": ("preflight.ptrace", {"ptrace_scope": 3, "may_trace_others": True}),
    "no py-spy": ("preflight.no_py_spy", {"py_spy": None}),
    "no verbs": ("init.device_invisible", {"verbs": ["rdma_cm"]}),
    "interface not there": ("bootstrap.wrong_interface", {"environment": {"NCCL_SOCKET_IFNAME": "ib0"}}),
    "NIC down": ("preflight.nic_down", {"topology": replace(topology("n3"), nics=(Nic("NIC0", "mlx5_0", up=False),))}),
    "NIC slow": ("preflight.nic_slow", {"topology": replace(topology("n3"), nics=(HALF_SPEED,))}),
    "NIC missing": ("init.device_invisible", {"topology": replace(topology("n3"), nics=()), "rdma": []}),
    "device missing": ("init.device_invisible", {"topology": topology("n3", devices=3)}),
    "all devices missing": ("init.device_invisible", {"topology": replace(topology("n3", devices=0), links=())}),
    "link missing": ("gpu.nvlink_missing", {"topology": without_link("n3", "GPU1", "GPU2")}),
    "fewer lanes": ("gpu.nvlink_missing", {"topology": topology("n3", lanes=8)}),
    "busy": ("preflight.device_busy", {"topology": replace(topology("n3"), devices=BUSY)}),
    "xid": ("gpu.fallen_off", {"reports": {**sound().reports, "dmesg": Report(XID.format(79))}}),
    "ecc by xid": ("gpu.ecc", {"reports": {**sound().reports, "dmesg": Report(XID.format(48))}}),
    "translated": ("host.acs_iommu", {"translated": ["0000:00:00.0"]}),
    "acs": ("host.acs_iommu", {"reports": {**sound().reports, "lspci": Report(ACS)}}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_gives_one_finding_that_names_the_host(fault: str) -> None:
    code, changes = FAULTS[fault]
    (finding,) = found(four(**changes))
    assert (finding.code, list(finding.hosts)) == (code, ["n3"])
    assert finding.severity in ("warning", "error") and finding.cause and finding.fix


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("gpu.ecc", "ECC Errors\n        Volatile\n            DRAM Uncorrectable  : 3"),
        ("gpu.ecc", "Remapped Rows\n        Pending       : Yes"),
        ("gpu.clock_throttled", "Clocks Event Reasons\n        HW Slowdown   : Active"),
        ("gpu.fabric_manager", "Fabric\n        State         : In Progress"),
        ("host.pcie_degraded", "GPU Link Info\n        Link Width\n            Max : 16x\n            Current : 8x"),
        ("preflight.compute_mode", "Compute Mode         : Prohibited"),
        ("preflight.device_busy", "FB Memory Usage\n        Used      : 30000 MiB"),
    ],
)  # fmt: skip
def test_what_the_driver_says_of_a_device_is_told(code: str, lines: str) -> None:
    (finding,) = found(four(reports={**sound().reports, "nvidia-smi": Report(GPU.format(lines))}))
    assert (finding.code, list(finding.hosts)) == (code, ["n3"])


def test_persistence_is_a_remark() -> None:
    hosts = four(reports={**sound().reports, "nvidia-smi": Report(GPU.format("Persistence Mode : Disabled"))})
    assert [(finding.code, finding.severity) for finding in found(hosts)] == [("preflight.persistence_off", "info")]


def test_faults_of_earlier_programs_say_nothing_of_the_host() -> None:
    lines = "\n".join(XID.format(number) for number in (13, 31, 43, 45))
    assert found(four(reports={**sound().reports, "dmesg": Report(lines)})) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"reports": {"dmesg": Report(error="dmesg: read kernel buffer failed: Operation not permitted")}},
            "not permitted",
        ),
        ({"shm": None}, "/dev/shm"),
        ({"resolved": {**RESOLVED, "n2": None}}, "no answer in time"),
        ({"reports": {"dmesg": Report()}}, "no lspci"),
        ({"topology": replace(topology("n3"), opaque=True)}, "virtual machine"),
    ],
)
def test_what_could_not_be_seen_is_unknown_and_no_finding(changes: dict[str, Any], words: str) -> None:
    hosts = four(**changes)
    assert found(hosts) == []
    assert any(words in cause for cause in unseen(hosts))
    assert all(finding.hosts for finding in run_checks(hosts))


def test_a_driver_that_fails_takes_its_devices_away() -> None:
    failing = Report(error="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    bare = replace(topology("n3", devices=0), links=())
    codes = {finding.code for finding in found(four(reports={**sound().reports, "nvidia-smi": failing}, topology=bare))}
    assert codes == {"init.device_invisible"}


def test_renumbered_devices_lack_nothing() -> None:
    """A partial clique in another order is the same hardware."""
    pairs = [("GPU0", "GPU1"), ("GPU2", "GPU3")]
    usual = tuple(Link(a, b, "NV", 12) for a, b in pairs)
    other = tuple(Link(a, b, "NV", 12) for a, b in (("GPU0", "GPU2"), ("GPU1", "GPU3")))
    hosts = [
        replace(facts, topology=replace(facts.topology, links=other if facts.host == "n3" else usual))
        for facts in four()
    ]
    assert found(hosts) == []


def test_hosts_of_another_generation_are_not_measured_by_the_rest() -> None:
    """Four devices of another model with fewer lanes and a slower port are no fault."""
    old = topology("n3", lanes=6)
    devices = tuple(replace(device, model="V100") for device in old.devices)
    assert found(four(topology=replace(old, devices=devices, nics=(HALF_SPEED,)))) == []


def test_hosts_without_devices_are_checked_for_what_they_have() -> None:
    bare = {"rdma": [], "verbs": [], "ranks": 1, "reports": {"dmesg": Report()}}
    hosts = [sound(name, topology=HostTopology(name), **bare) for name in NAMES]
    assert run_checks(hosts) == []
    limited = [replace(facts, limits={**facts.limits, "memlock": (8 * MIB, 8 * MIB)}) for facts in hosts]
    assert run_checks(limited) == []


def test_a_name_of_the_inventory_alone_is_no_fault() -> None:
    aliases = {name: [] for name in NAMES}
    assert found([sound(name, resolved=aliases) for name in NAMES]) == []


def test_a_name_that_all_get_wrong_is_its_hosts_fault() -> None:
    everywhere = {**RESOLVED, "n2": ["10.8.8.8"]}
    (finding,) = found([sound(name, resolved=everywhere) for name in NAMES])
    assert (finding.code, list(finding.hosts)) == ("bootstrap.name_mismatch", ["n2"])


def test_interfaces_are_named_as_nccl_reads_them() -> None:
    for wish in ("eth", "=eth0", "^docker,lo", "ib0,eth0"[4:]):
        assert found([sound(name, environment={"NCCL_SOCKET_IFNAME": wish}) for name in NAMES]) == []
    down = {"eth0": Interface(False), "lo": Interface(True)}
    hosts = [sound(name, environment={"GLOO_SOCKET_IFNAME": "eth0"}, interfaces=down) for name in NAMES]
    assert {finding.code for finding in found(hosts)} == {"bootstrap.wrong_interface"}


@pytest.mark.parametrize("offset", [0.5, 1.9])
def test_small_offsets_and_uncertain_ones_are_no_skew(offset: float) -> None:
    assert found(four(clock_offset=offset)) == []
    assert found(four(clock_offset=offset + 5, clock_doubt=6.0)) == []


def test_this_machines_own_clock_may_be_the_wrong_one() -> None:
    assert found([sound(name, clock_offset=600.0) for name in NAMES]) == []


def test_two_hosts_are_measured_by_this_machines_clock() -> None:
    (finding,) = found([sound("n1"), sound("n2", clock_offset=3600.0)])
    assert list(finding.hosts) == ["n2"]


def test_no_py_spy_anywhere_is_a_remark() -> None:
    assert [finding.severity for finding in found([sound(name, py_spy=None) for name in NAMES])] == ["info"]


def test_root_may_attach_under_ptrace_scope_2() -> None:
    assert found(four(ptrace_scope=2, may_trace_others=True)) == []
    assert [finding.code for finding in found(four(ptrace_scope=2))] == ["preflight.ptrace"]


def test_memory_without_an_rdma_device_may_be_limited() -> None:
    limits = {"memlock": (8 * MIB, 8 * MIB), "open_files": (UNLIMITED, UNLIMITED)}
    assert found([sound(name, rdma=[], limits=limits) for name in NAMES]) == []


@pytest.mark.parametrize("seed", range(20))
def test_any_mixture_of_faults_on_different_hosts_is_told_apart(seed: int) -> None:
    """Two faults on two hosts give exactly these two findings."""
    rng = random.Random(seed)
    apart = [name for name in FAULTS if not name.startswith(("NIC", "device", "all", "name", "wrong", "loopback"))]
    one, other = rng.sample(apart, 2)
    changed = {"n2": FAULTS[one][1], "n4": FAULTS[other][1]}
    hosts = [
        replace(sound(name), **{key: value for key, value in changed.get(name, {}).items() if key != "topology"})
        for name in NAMES
    ]
    expected = {
        (FAULTS[fault][0], host) for fault, host in ((one, "n2"), (other, "n4")) if set(FAULTS[fault][1]) - {"topology"}
    }
    assert {(finding.code, host) for finding in found(hosts) for host in finding.hosts} == expected
