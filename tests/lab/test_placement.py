"""Ranks land on the devices that the plan gives them, seen from inside the ranks; where they do not, it is said."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.topology.parse import parse_topology
from tests.lab import fake_nvidia_smi
from tests.lab.ssh import SshLab
from tests.launcher.placement.brute import Oracle, best_partition
from tests.support.dlaunch import BIN

pytestmark = [pytest.mark.lab, pytest.mark.timeout(200)]

NEAR = (0, 0, 1, 1)  # the NIC next to each device
MATRICES = {
    "n1": fake_nvidia_smi.matrix(4, {(0, 2): "NV4", (1, 3): "NV4"}, near=NEAR),
    "n2": fake_nvidia_smi.matrix(4, {(0, 3): "NV4"}, other="PHB", near=NEAR),  # the link of the other pair is missing
    "n3": fake_nvidia_smi.matrix(4, {(0, 2): "NV4", (1, 3): "NV4"}, near=NEAR),
}
RENUMBERED = {"n3": (2, 3, 1, 0)}
SAY = """
import json, os, pathlib, sys, time
here = pathlib.Path(os.environ["DLAUNCH_DIR"], "nodes", os.environ["DLAUNCH_NODE_RANK"], "agent.json")
names = ("RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "DLAUNCH_MESH", "DLAUNCH_NIC")
said = {**{name: os.environ.get(name) for name in names}, "host": os.uname().nodename}
pathlib.Path(sys.argv[1], "said-" + said["RANK"]).write_text(json.dumps(said))
deadline = time.monotonic() + 60
while json.loads(here.read_text())["ranks"][int(said["LOCAL_RANK"])]["device"] is None:  # its agent has not seen it yet
    assert time.monotonic() < deadline
    time.sleep(0.05)
"""


class Placed:
    """`dlaunch` on the login node of a lab whose hosts have devices."""

    def __init__(self, lab: SshLab) -> None:
        self.lab, self.shared = lab, Path(lab.share[0])
        self.configure()
        self.script = self.shared / "say.py"
        self.script.write_text(SAY)

    def configure(self, **settings: Any) -> None:
        base = {"python": sys.executable, "workdir": str(self.shared), "shared_filesystem": False, **settings}
        (self.lab.home / "inventory.yaml").write_text(self.lab.inventory_yaml(**base))

    def call(self, program: str, *args: str, status: int = 0) -> tuple[str, str]:
        argv = ["env", "-C", str(self.lab.home), str(BIN / program), *args]
        done = self.lab.run_on_login(argv, timeout=120)
        assert done.returncode == status, done.stderr + done.stdout
        return done.stdout, done.stderr

    def json(self, program: str, *args: str, status: int = 0) -> Any:
        return json.loads(self.call(program, args[0], "--json", *args[1:], status=status)[0])

    def said(self, ranks: int) -> dict[int, dict[str, Any]]:
        """What each rank wrote of itself."""
        return {rank: json.loads((self.shared / f"said-{rank}").read_text()) for rank in range(ranks)}


@pytest.fixture(scope="module")
def placed(ssh_lab_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Placed]:
    with SshLab(3, share=[tmp_path_factory.mktemp("shared")]) as lab:
        for host, text in MATRICES.items():
            fake_nvidia_smi.give_devices(lab, host, text, RENUMBERED.get(host, (0, 1, 2, 3)))
        yield Placed(lab)


def test_ranks_land_as_planned_on_hosts_that_all_differ(placed: Placed) -> None:
    mesh = "dp_shard=6,tp=2"
    plan = {entry["rank"]: entry for entry in placed.json("dlaunch", "place", "--mesh", mesh)["ranks"]}
    job = placed.json("dlaunch", "run", str(placed.script), "--mesh", mesh, "--nodes", "3", "--", str(placed.shared))
    said = placed.said(12)
    for rank, told in said.items():
        device = told["CUDA_VISIBLE_DEVICES"].split(",")[int(told["LOCAL_RANK"])]
        expected = plan[rank]
        assert (told["host"], device, told["DLAUNCH_MESH"]) == (expected["host"], expected["uuid"], mesh)
        assert expected["coordinate"] == {"dp_shard": rank // 2, "tp": rank % 2}
        number = RENUMBERED.get(told["host"], (0, 1, 2, 3)).index(int(device[-1]))
        assert (number, f"mlx5_{NEAR[number]}") == (expected["device"], expected["nic"])
        assert told["DLAUNCH_NIC"] == expected["nic"]
    assert job["findings"] == []
    assert [(entry["rank"], entry["shown"]["device"]) for entry in job["bindings"]] == [
        (rank, entry["uuid"]) for rank, entry in sorted(plan.items())
    ]
    for host, text in MATRICES.items():
        topology = parse_topology(text, host)
        pairs = [[e["device"] for e in plan.values() if e["host"] == host][i : i + 2] for i in (0, 2)]
        oracle = Oracle([topology], 4)
        slowest = min(oracle.ring(0, tuple(sorted(pair))) for pair in pairs)
        assert slowest == best_partition(topology, 2), (host, pairs)
        assert best_partition(topology, 2) == (18.0 if host == "n2" else 80.0)


def test_ranks_that_are_elsewhere_are_named_by_run_and_by_the_doctor(placed: Placed) -> None:
    placed.configure(setup=["export CUDA_VISIBLE_DEVICES=GPU-n1-1,GPU-n1-0,GPU-n1-2,GPU-n1-3 NCCL_IB_HCA=mlx5_1"])
    shape = ["--no-torchrun", "--mesh", "tp=4", "--nodes", "1"]
    _, messages = placed.call("dlaunch", "run", str(placed.script), *shape, "--", str(placed.shared))
    assert "mesh.device_order" in messages and "mesh.nic_far" in messages
    found = {finding["code"]: finding for finding in placed.json("ddoctor", "mesh", "last", status=1)["findings"]}
    assert found.keys() == {"mesh.device_order", "mesh.nic_far"}
    planned = placed.json("dlaunch", "wait", "last")["bindings"]
    wrong = [entry["rank"] for entry in planned if entry["device"] != entry["shown"]["device"]]
    assert found["mesh.device_order"]["ranks"] == wrong and wrong
    assert found["mesh.nic_far"]["ranks"] == [entry["rank"] for entry in planned if entry["nic"] == "mlx5_0"]
