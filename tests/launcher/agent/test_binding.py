"""What a rank's process shows of its devices, CPUs and NICs, and what the driver says of who uses which device."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.agent import nvml
from launcher.agent.binding import device_of, look, visible_variable

CUDA = "CUDA_VISIBLE_DEVICES"
LIBRARY = r"""
#include <string.h>
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } Process;
static int one, two;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    *handle = strcmp(uuid, "GPU-a") ? (void *)&two : (void *)&one;
    return strcmp(uuid, "GPU-a") && strcmp(uuid, "GPU-b") ? 6 : 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *found) {
    if (*count < 2) return 7;
    found[0].pid = 41;
    found[1].pid = handle == &one ? 42 : 43;
    *count = 2;
    return 0;
}
"""


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    """A process with the environment of local rank 1, bound to the first CPU that this one may use."""
    environment = {"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a", "LOCAL_RANK": "1", "NCCL_IB_HCA": "mlx5_0"}
    cpu = min(os.sched_getaffinity(0))
    child = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{cpu}]); print(flush=True); input()"],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout
    child.stdout.readline()
    yield child
    child.communicate(b"\n")


def test_a_process_shows_its_device_cpus_and_nics(rank: subprocess.Popen[bytes]) -> None:
    cpu = str(min(os.sched_getaffinity(0)))
    assert look(rank.pid, CUDA) == {"device": "GPU-a", "cpus": cpu, "hca": "mlx5_0"}
    assert look(rank.pid, CUDA, {"GPU-a", "GPU-b"})["device"] == "GPU-a"
    assert look(rank.pid, CUDA, {"GPU-b"})["device"] == "GPU-b"  # it works on another one than it should


def test_a_process_that_is_gone_or_a_zombie_shows_nothing(rank: subprocess.Popen[bytes]) -> None:
    rank.kill()
    os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
    assert look(rank.pid, CUDA) == {}
    rank.wait()
    assert look(rank.pid, CUDA) == {}


@pytest.mark.parametrize(
    ("environment", "device"),
    [
        ({CUDA: "3", "LOCAL_RANK": "5"}, "3"),  # a wrapper gave each rank its own
        ({CUDA: "0,1", "LOCAL_RANK": "2"}, None),
        ({CUDA: "", "LOCAL_RANK": "0"}, None),
        ({}, None),
    ],
)
def test_the_device_of_an_environment(environment: dict[str, str], device: str | None) -> None:
    assert device_of(environment, CUDA) == device


def test_the_variable_that_the_plan_sets_counts_and_not_slurms() -> None:
    """Slurm sets the variables of all vendors."""
    seen = {CUDA: "GPU-a,GPU-b", "ROCR_VISIBLE_DEVICES": "0,1", "LOCAL_RANK": "1"}
    assert device_of(seen, visible_variable({CUDA: "GPU-a,GPU-b"})) == "GPU-b"
    assert device_of(seen, visible_variable({"ROCR_VISIBLE_DEVICES": "1,0"})) == "1"
    assert visible_variable({}) == CUDA


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for a library that answers as the driver's")
def test_the_driver_tells_which_process_works_on_which_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "libnvidia-ml.so.1"
    source = tmp_path / "nvml.c"
    source.write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    monkeypatch.setattr(nvml, "_LIBRARY", str(library))
    users = nvml.Devices(["GPU-a", "GPU-b", "GPU-gone"]).users()
    assert users == {41: {"GPU-a", "GPU-b"}, 42: {"GPU-a"}, 43: {"GPU-b"}}
    assert nvml.Devices([]).users() == {}
