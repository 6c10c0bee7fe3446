"""Ranks of jobs that we did not start, in a /proc that we lay ourselves and in real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from launcher.agent.foreign import find_ranks, in_job_cgroup, script_of

TORCH = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
STAT = "{pid} (a) b) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1500 0 0"


def lay(proc: Path, pid: int, environment: Mapping[str, str], command: str = "python a.py", parent: int = 1) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "environ").write_text("".join(f"{name}={value}\0" for name, value in environment.items()))
    (folder / "cmdline").write_text(command.replace(" ", "\0") + "\0")
    (folder / "stat").write_text(STAT.format(pid=pid, parent=parent))
    (folder / "status").write_text(f"Name:\ta\nNSpid:\t{pid}\t7\n")
    (folder / "cgroup").write_text("0::/user.slice\n")
    (proc / "stat").write_text("cpu 1\nbtime 1000\n")


def test_a_rank_is_told_with_its_place(tmp_path: Path) -> None:
    lay(tmp_path, 50, {**TORCH, "SLURM_JOB_ID": "9", "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"})
    (rank,) = find_ranks("9", str(tmp_path))["ranks"]
    assert (rank["rank"], rank["local_rank"], rank["world_size"], rank["pid"], rank["pid_inside"]) == (3, 1, 8, 50, 7)
    assert (rank["device"], rank["endpoint"], rank["script"]) == ("GPU-b", "n1:29500", "a.py")
    assert rank["start_time"] == 1000 + 1500 / os.sysconf("SC_CLK_TCK")


def test_workers_of_a_data_loader_are_no_ranks(tmp_path: Path) -> None:
    for pid, parent in ((50, 1), (51, 50), (52, 50)):
        lay(tmp_path, pid, {**TORCH, "SLURM_JOB_ID": "9"}, parent=parent)
    assert [rank["pid"] for rank in find_ranks("9", str(tmp_path))["ranks"]] == [50]


def test_the_starter_of_a_container_is_no_rank(tmp_path: Path) -> None:
    lay(tmp_path, 50, {**TORCH, "SLURM_JOB_ID": "9"}, "starter --fork")
    lay(tmp_path, 51, {**TORCH, "SLURM_JOB_ID": "9"}, "sh run.sh", parent=50)
    lay(tmp_path, 52, {**TORCH, "SLURM_JOB_ID": "9"}, parent=51)
    assert [rank["pid"] for rank in find_ranks("9", str(tmp_path))["ranks"]] == [52]


def test_other_jobs_and_other_programs_are_left_out(tmp_path: Path) -> None:
    lay(tmp_path, 50, {**TORCH, "SLURM_JOB_ID": "8"})
    lay(tmp_path, 51, {"SLURM_JOB_ID": "9"}, "torchrun train.py")
    assert find_ranks("9", str(tmp_path))["ranks"] == []


def test_tasks_of_srun_without_torchrun_are_ranks(tmp_path: Path) -> None:
    slurm = {"SLURM_JOB_ID": "9", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0"}
    lay(tmp_path, 50, {**slurm, "SLURM_PROCID": "1"}, "/usr/bin/python3.11 -u train.py --lr 1")
    lay(tmp_path, 51, {**slurm, "SLURM_PROCID": "1"}, "bash -c sleep")
    (rank,) = find_ranks("9", str(tmp_path))["ranks"]
    assert (rank["rank"], rank["world_size"], rank["script"]) == (1, 2, "train.py")


def test_a_job_in_a_container_that_clears_the_environment_is_known_by_its_cgroup(tmp_path: Path) -> None:
    lay(tmp_path, 50, TORCH)
    (tmp_path / "50/cgroup").write_text("0::/system.slice/slurmstepd.scope/job_9/step_0/user/task_0\n")
    assert [rank["rank"] for rank in find_ranks("9", str(tmp_path))["ranks"]] == [3]
    assert not in_job_cgroup("0::/job_91/step_0", "9")


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python3 -u -W ignore train.py a b", "train.py"),
        ("python -m torchtitan.train --x", "torchtitan.train"),
        ("python -c pass", "-c"),
        ("./train", "./train"),
        ("python", "python"),
    ],
)
def test_scripts(command: str, script: str) -> None:
    assert script_of(command.split()) == script


def test_a_real_process_is_found_with_its_start_time() -> None:
    environment = {**TORCH, "SLURM_JOB_ID": "4711", "PATH": os.environ["PATH"]}
    with subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True); input()"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (rank,) = find_ranks("4711")["ranks"]
        process.communicate(b"\n")
    assert rank["pid"] == process.pid
    assert abs(rank["start_time"] - time.time()) < 30
