"""A cluster's entry and a job's shape -> sbatch options; checked on paper, sent for real in test_slurm_jobs."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.errors import InputError
from launcher.inventory import SlurmCluster
from launcher.jobs.slurm_site import allocated
from launcher.jobs.slurm_submit import devices_per_node
from launcher.slurm.borrow import salloc_argv
from launcher.slurm.script import (
    SUPERVISE_FUNCTION,
    batch_script,
    check_time,
    container_options,
    with_options,
)
from launcher.slurm.text import help_options
from launcher.spec import JobSpec, MeshSpec
from launcher.topology import Device, HostTopology

SPEC = JobSpec("train", "/w/train.py", (), 4, 2, MeshSpec({"dp_shard": 8}))


def cluster(**keys: object) -> SlurmCluster:
    return SlurmCluster(kind="slurm", **keys)  # type: ignore[arg-type]


def test_every_key_is_an_option_of_its_name() -> None:
    given = {
        "partition": "gpu", "account": "a", "qos": "q", "time": "2:00:00", "constraint": "h100", "gpus_per_node": 8,
        "cpus_per_task": 32, "mem": "100G", "nodelist": "n[1-4]", "reservation": "r", "switches": "1@10:00",
        "segment": 2, "licenses": "l:1",
    }  # fmt: skip
    flags = batch_script(cluster(**given), SPEC, "train-1").flags
    assert flags.items() >= {key.replace("_", "-"): value for key, value in given.items()}.items()
    assert (flags["nodes"], flags["ntasks-per-node"], flags["job-name"]) == ("4", 1, "train-1")


def test_the_warning_goes_to_the_batch_script_alone() -> None:
    assert batch_script(cluster(signal_seconds=30), SPEC, "j").flags["signal"] == "B:USR2@30"


def test_a_job_of_some_nodes_asks_for_a_range() -> None:
    elastic = replace(SPEC, min_nodes=2, max_nodes=4)
    assert batch_script(cluster(), elastic, "j").flags["nodes"] == "2-4"


def test_nodes_to_leave_out_come_from_entry_and_command_line() -> None:
    assert batch_script(cluster(exclude="n9"), SPEC, "j", ["n[1-2]"]).flags["exclude"] == "n9,n[1-2]"


def test_requeue_is_said_either_way() -> None:
    assert "requeue" in batch_script(cluster(), SPEC, "j").flags
    assert "no-requeue" in batch_script(cluster(requeue=False), SPEC, "j").flags


def test_other_flags_pass_but_not_ours() -> None:
    flags = batch_script(
        cluster(sbatch={"--mail_type": "END", "exclusive": True, "spread-job": False}), SPEC, "j"
    ).flags
    assert flags.items() >= {"mail-type": "END", "exclusive": True}.items()
    assert "spread-job" not in flags
    with pytest.raises(InputError, match="--nodes is set by dlaunch"):
        batch_script(cluster(sbatch={"nodes": 3}), SPEC, "j")


def test_the_command_line_goes_before_the_entry() -> None:
    entry = cluster(partition="a", time="1:00:00", sbatch={"mail-type": "END"})
    changed = with_options(entry, ["partition=b", "--exclusive", "cpus-per-task=4", "mail-type=ALL"])
    assert (changed.partition, changed.time, changed.cpus_per_task) == ("b", "1:00:00", 4)
    assert changed.sbatch == {"mail-type": "ALL", "exclusive": True}
    with pytest.raises(InputError, match="--sbatch segment"):
        with_options(entry, ["segment=many"])


def test_containers_by_pyxis() -> None:
    given = cluster(container_image="img.sqsh", container_mounts=["/a:/a", "/b:/b"])
    assert container_options(given) == ["--container-image=img.sqsh", "--container-mounts=/a:/a,/b:/b"]
    assert container_options(cluster()) == []


@pytest.mark.parametrize(("time", "words"), [("soon", "no time limit"), ("0:30", "leaves nothing")])
def test_time_limits_that_cannot_be(time: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_time(cluster(time=time), "inventory.yaml: hpc")


@pytest.mark.parametrize(
    ("keys", "devices"),
    [
        ({"gpus_per_node": 4}, 4),
        ({"gpus_per_node": "h100:2"}, 2),
        ({"gres": "gpu:a100:8"}, 8),
        ({"gres": "gpu:3,shard:2"}, 3),
        ({"gres": "shard:2"}, None),
        ({}, None),
    ],
)
def test_devices_of_a_node_follow_from_the_wish(keys: dict[str, object], devices: int | None) -> None:
    assert devices_per_node(cluster(**keys)) == devices


def test_options_of_a_help_text() -> None:
    text = "  -p, --partition=partition   partition requested\n      --gpus-per-node=n       number\n  --help2\n"
    assert help_options(text) == {"partition", "gpus-per-node", "help2"}


def test_only_the_devices_of_the_job_are_used() -> None:
    node = HostTopology("n1", devices=tuple(Device(index, f"GPU{index}") for index in range(4)))
    assert [device.index for device in allocated(node, "1,3").devices] == [1, 3]
    assert len(allocated(node, "").devices) == 4
    hidden = replace(node, devices=node.devices[:2])  # Slurm shows the job its own two alone, as 0 and 1
    assert len(allocated(hidden, "2,3").devices) == 2


def bash(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    script = f"{SUPERVISE_FUNCTION}\nsupervise {' '.join(command)}\necho status $?\n"
    environment = {"SLURM_JOB_ID": "7", "TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=20)


def test_the_script_ends_as_its_supervisor_did(tmp_path: Path) -> None:
    assert bash(tmp_path, "sh", "-c", "'exit 3'").stdout == "status 3\n"


def test_the_script_passes_the_warning_on(tmp_path: Path) -> None:
    python = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
os.kill(os.getppid(), signal.SIGUSR2)
signal.sigwait({signal.SIGUSR2})
print("warned")
"""
    (tmp_path / "s.py").write_text(python)
    assert bash(tmp_path, "python3", str(tmp_path / "s.py")).stdout == "warned\nstatus 0\n"


def test_the_script_waits_for_steps_that_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    step = "flock --shared $DLAUNCH_STEPS sh -c 'sleep 1; echo step ended'"
    (tmp_path / "s.sh").write_text(f"setsid -f {step}\nuntil ! flock -n $DLAUNCH_STEPS true; do :; done\nkill -9 $$\n")
    assert bash(tmp_path, "sh", str(tmp_path / "s.sh")).stdout == "step ended\nstatus 137\n"


def test_a_look_asks_for_whole_nodes_for_a_short_time() -> None:
    entry = cluster(partition="gpu", account="me", gpus_per_node=8, time="1-00:00:00", exclude="n9")
    argv = salloc_argv(entry, (), 2)
    assert argv[:2] == ["salloc", "--no-shell"]
    assert {"--partition=gpu", "--account=me", "--gpus-per-node=8", "--time=30", "--exclusive", "--nodes=2"} < set(argv)
    assert "--exclude=n9" in argv
    named = salloc_argv(cluster(time="10"), ("n1", "n2"), 1)
    assert {"--nodelist=n1,n2", "--nodes=2", "--time=10"} < set(named)
