"""The lab cluster behaves like machines: own names, own processes, a cable to pull, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import namespaces
from tests.lab.namespaces import wait_until
from tests.lab.slurm import SlurmLab
from tests.lab.slurm_config import ClusterShape

pytestmark = pytest.mark.lab
ON_EACH_NODE = ["srun", "--nodes=4", "--ntasks-per-node=1", "--label"]


@pytest.fixture(scope="module")
def lab(slurm_lab_ready: None) -> Iterator[SlurmLab]:
    with SlurmLab(ClusterShape(accounting=False, node_timeout=3)) as raised:
        yield raised


def test_each_node_has_its_own_name_and_sees_only_its_own_processes(lab: SlurmLab) -> None:
    said = lab.run_on_login(
        [*ON_EACH_NODE, "sh", "-c", "hostname; cat /proc/1/comm /proc/[0-9]*/comm | grep -c slurmd$"]
    )
    assert sorted(said.stdout.splitlines()) == [
        line for rank in range(4) for line in (f"{rank}: 1", f"{rank}: n{rank + 1}")
    ]


def test_jobs_learn_their_place_in_the_tree_of_switches(lab: SlurmLab) -> None:
    said = lab.run_on_login([*ON_EACH_NODE, "printenv", "SLURM_TOPOLOGY_ADDR"])
    assert set(said.stdout.split()[1::2]) == {"spine.leaf1.n1", "spine.leaf1.n2", "spine.leaf2.n3", "spine.leaf2.n4"}


def test_the_work_directory_is_shared_and_tmp_is_not(lab: SlurmLab) -> None:
    lab.run_on_node("n1", ["sh", "-c", f"touch /tmp/mine {lab.work}/ours"])
    seen = lab.run_on_node("n2", ["sh", "-c", f"ls /tmp {lab.work}"]).stdout
    assert "ours" in seen
    assert "mine" not in seen


def test_a_node_whose_cable_is_pulled_goes_down_and_comes_back(lab: SlurmLab) -> None:
    lab.network.cut("n4")
    lab.wait_for_nodes("down*", ["n4"])
    lab.network.heal("n4")
    lab.wait_for_nodes("idle", ["n4"])


def test_tasks_outlive_a_killed_slurmd(lab: SlurmLab) -> None:
    step = lab.popen_on_login(["srun", "-w", "n3", "sleep", "987"])
    wait_until(lambda: _sleeps(lab), "the task")
    lab.kill_slurmd("n3")
    assert _sleeps(lab)
    lab.start_slurmd("n3")
    lab.run_on_login(["scancel", "--user=root"])
    step.wait(30)
    lab.wait_for_nodes("idle", ["n3"])


def test_two_labs_stand_side_by_side_and_leave_nothing(lab: SlurmLab) -> None:
    with SlurmLab(ClusterShape(nodes=1, leaves=(("n1",),))) as second:
        assert second.run_on_login(["sacct"]).returncode == 0
        assert len(second.run_on_login(["sinfo", "-hN", "-p", "main"]).stdout.splitlines()) == 1
        assert len(lab.run_on_login(["sinfo", "-hN", "-p", "main"]).stdout.splitlines()) == 4
    assert not second.root.exists()
    assert not any(namespaces.exists(second.network.namespace(name)) for name in ("login", "n1"))
    assert not [entry for entry in Path("/proc").glob("[0-9]*/cmdline") if _mentions(entry, str(second.root))]


def _sleeps(lab: SlurmLab) -> bool:
    return lab.run_on_node("n3", ["pgrep", "-f", "sleep 987$"], check=False).returncode == 0


def _mentions(cmdline: Path, text: str) -> bool:
    try:
        return text.encode() in cmdline.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
