"""Preflight on real hosts, each with one planted fault: every one is found and named, and none where there is none."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.lab import fake_nvidia_smi
from tests.lab.seed import SUBNET, HostOptions
from tests.lab.ssh import SshLab
from tests.support.dlaunch import BIN

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

HEALTHY = ("n1", "n2", "n3", "n4")
OTHER_TORCH = {"/opt/other/torch-2.1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.1.0\n"}
WRONG_ADDRESS = "".join(f"{SUBNET}.{number} n{number}\n" for number in range(2, 13)) + f"{SUBNET}.99 n1\n"
FAULTS = {
    "n5": HostOptions(files={"/etc/hosts": f"127.0.0.1 localhost\n{WRONG_ADDRESS}"}),
    "n6": HostOptions(name_is_loopback=True),
    "n8": HostOptions(clock_offset_s=3600),
    "n9": HostOptions(shm="32m"),
    "n10": HostOptions(files={"/root/.bashrc": "ulimit -n 256\n"}),
    "n11": HostOptions(files=OTHER_TORCH, sshd=("SetEnv PYTHONPATH=/opt/other",)),
    "n12": HostOptions(disk="64m"),
}
EXPECTED = {
    "n5": "bootstrap.name_mismatch",
    "n6": "bootstrap.loopback_master",
    "n7": "bootstrap.unreachable",  # iptables
    "n8": "preflight.clock_skew",
    "n9": "init.shm_full",
    "n10": "init.file_descriptors",
    "n11": "torch.version_mismatch",
    "n12": "host.disk_full",
    "n13": "preflight.no_py_spy",
}
CLOSE = ["iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "20000:32000", "-j", "REJECT"]


class Checked:
    """`dlaunch` on the login node of the lab."""

    def __init__(self, lab: SshLab) -> None:
        self.lab = lab
        settings = {"python": sys.executable, "nproc_per_node": 1, "shared_filesystem": False}
        (lab.home / "inventory.yaml").write_text(lab.inventory_yaml(**settings))

    def json(self, *args: str, status: int) -> Any:
        argv = ["env", "-C", str(self.lab.home), str(BIN / "dlaunch"), args[0], "--json", *args[1:]]
        done = self.lab.run_on_login(argv, timeout=200)
        assert done.returncode == status, done.stderr + done.stdout
        return json.loads(done.stdout)

    def preflight(self, *args: str, status: int) -> dict[str, dict[str, Any]]:
        """Host -> its entry."""
        return {entry["host"]: entry for entry in self.json("preflight", *args, status=status)["hosts"]}


@pytest.fixture(scope="module")
def lab(ssh_lab_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshLab]:
    with SshLab(13, share=[tmp_path_factory.mktemp("shared")], per_host=FAULTS) as lab:
        lab.run_on("n7", CLOSE)
        lab.run_on("n12", ["sh", "-c", "cat /dev/zero >/fill || true"], stderr=None)
        lab.run_on("n13", ["rm", str(BIN / "py-spy")])
        yield lab


@pytest.fixture
def checked(lab: SshLab) -> Checked:
    return Checked(lab)


def codes(entry: Mapping[str, Any]) -> set[str]:
    return {finding["code"] for finding in entry["findings"]}


def test_every_planted_fault_is_found_and_named_and_run_takes_the_other_hosts(checked: Checked) -> None:
    found = checked.preflight("--quick", status=1)
    assert {host: codes(entry) for host, entry in found.items()} == {
        host: {EXPECTED[host]} if host in EXPECTED else set() for host in checked.lab.hosts
    }
    assert [host for host, entry in found.items() if entry["verdict"] == "good"] == list(HEALTHY)
    for host, code in EXPECTED.items():
        finding = found[host]["findings"][0]
        assert finding["hosts"] == [host] and host in finding["cause"] and finding["fix"], code
    assert "n1" in found["n5"]["findings"][0]["cause"]
    assert 3590 < found["n8"]["findings"][0]["detail"]["offset_s"] < 3610
    assert "2.1.0" in found["n11"]["findings"][0]["cause"]
    script = checked.lab.home / "job.py"
    script.write_text("")
    planned = checked.json("render", str(script), "--exclude-bad", "--sync", status=0)
    assert [node["host"] for node in planned["nodes"]] == list(HEALTHY)


def test_a_slow_link_is_told_by_elimination_and_healthy_hosts_pass(checked: Checked) -> None:
    lab, four = checked.lab, ("--hosts", ",".join(HEALTHY))
    shaped = [
        "tc",
        "qdisc",
        "replace",
        "dev",
        "eth0",
        "root",
        "tbf",
        "rate",
        "20mbit",
        "burst",
        "64kb",
        "latency",
        "100ms",
    ]
    lab.run_on("n3", shaped)
    try:
        slow = checked.preflight(*four, status=1)
    finally:
        lab.run_on("n3", ["tc", "qdisc", "del", "dev", "eth0", "root"])
    assert {host: codes(entry) for host, entry in slow.items()} == {
        host: {"preflight.slow_link"} if host == "n3" else set() for host in HEALTHY
    }
    well = checked.preflight(*four, status=0)
    assert all(entry["verdict"] == "good" and not entry["findings"] for entry in well.values())


def test_a_host_that_gives_no_answer_is_unknown_and_hides_no_other(checked: Checked) -> None:
    checked.lab.cut("n2")
    try:
        found = checked.preflight("--quick", "--hosts", "n[1-3]", status=3)
        nodes = checked.json("nodes", status=0)["hosts"]
    finally:
        checked.lab.heal("n2")
    assert {host: entry["verdict"] for host, entry in found.items()} == {"n1": "good", "n2": "unknown", "n3": "good"}
    assert found["n2"]["findings"][0]["code"] == "unknown"
    assert next(node["host"] for node in nodes if not node["reachable"]) == "n2"
    assert nodes[0]["versions"]["python"] and nodes[0]["state"] in ("free", "busy")


def matrix(lost: tuple[int, int] | None = None) -> str:
    """Four devices, all joined by NV12 but for one pair."""
    return fake_nvidia_smi.matrix(4, {lost: "SYS"} if lost else {}, other="NV12")


def test_a_lost_link_is_seen_beside_peers_and_beside_last_time(checked: Checked) -> None:
    lab, four = checked.lab, ("--quick", "--hosts", ",".join(HEALTHY))
    try:
        for host in HEALTHY:
            fake_nvidia_smi.give_devices(lab, host, matrix())
        assert all(not entry["findings"] for entry in checked.preflight(*four, "--accept", status=0).values())
        fake_nvidia_smi.give_devices(lab, "n2", matrix(lost=(1, 2)))
        fake_nvidia_smi.give_devices(lab, "n4", matrix(), order=(2, 3, 0, 1))
        beside_peers = checked.preflight(*four, status=1)
        beside_last_time = checked.preflight("--quick", "--hosts", "n2", status=1)
        for found in (beside_peers, beside_last_time):
            (finding,) = found["n2"]["findings"]
            assert finding["code"] == "gpu.nvlink_missing"
            assert "GPU1-GPU2 no direct link instead of NV12" in finding["cause"]
        assert codes(beside_peers["n4"]) == {"preflight.renumbered"} and beside_peers["n4"]["verdict"] == "good"
    finally:
        for host in HEALTHY:
            lab.run_on(host, ["rm", "-f", "/usr/local/bin/nvidia-smi"])
