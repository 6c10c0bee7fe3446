"""The ranks of a job that we did not start, found by their environment. Runs on the node; standard library only.

Containers' pid namespaces are seen from the host's, so every pid here is the host's.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

TORCH = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
SLURM = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")  # for scripts that srun starts without torchrun
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
KEPT = (*TORCH, *SLURM, *VISIBLE, "MASTER_ADDR", "MASTER_PORT", "NCCL_IB_HCA", "SLURM_JOB_ID", "SLURM_STEP_ID")
_INTERPRETER = re.compile(r"(?:^|/)python[\d.]*$")


def find_ranks(slurm_job: str | None, proc: str = "/proc") -> dict[str, Any]:
    """`ranks`: the processes that are ranks, of Slurm job `slurm_job` if given; `unreadable`: uids of processes that
    belong to the job, as their cgroup says, and whose environment this user may not read.
    """
    environments: dict[int, Mapping[str, str]] = {}
    unreadable: set[int] = set()
    for pid in _pids(proc):
        with suppress(FileNotFoundError, ProcessLookupError):
            ours = slurm_job is not None and in_job_cgroup(_text(proc, pid, "cgroup"), slurm_job)
            try:
                environment = read_environment(Path(proc, str(pid), "environ").read_bytes())
            except PermissionError:
                if ours:
                    unreadable.add(Path(proc, str(pid)).stat().st_uid)
                continue
            if slurm_job is None or ours or environment.get("SLURM_JOB_ID") == slurm_job:
                environments[pid] = environment
    ranks = _ranks(proc, environments, TORCH) or _ranks(proc, environments, SLURM)
    return {"ranks": sorted(ranks, key=lambda rank: int(rank["rank"])), "unreadable": sorted(unreadable)}


def _ranks(proc: str, environments: Mapping[int, Mapping[str, str]], names: tuple[str, ...]) -> list[dict[str, Any]]:
    """For each rank that `names` (rank, local rank, world size) tell: the first Python in its line of descent.

    What stands before it is a container's starter, what follows are its data loader's workers. A rank without any
    Python is the first process of its line.
    """
    lines: dict[tuple[str, ...], list[int]] = {}
    for pid, environment in environments.items():
        key = tuple(environment.get(name, "") for name in names)
        if all(value.isdigit() for value in key) and not _is_our_own(environment, names):
            lines.setdefault(key, []).append(pid)
    found = []
    for pids in lines.values():
        pythons = [pid for pid in pids if _INTERPRETER.search(_command(proc, pid)[0])]
        if names == SLURM and not pythons:
            continue  # srun gives its variables to every program
        candidates = pythons or pids
        found += [pid for pid in candidates if not set(_ancestors(proc, pid)) & set(candidates)]
    return [_describe(proc, pid, environments[pid], names) for pid in found]


def _is_our_own(environment: Mapping[str, str], names: tuple[str, ...]) -> bool:
    """Whether a task of srun belongs to the step in which we look ourselves."""
    return names == SLURM and environment.get("SLURM_STEP_ID") == os.environ.get("SLURM_STEP_ID")


def _ancestors(proc: str, pid: int) -> Iterator[int]:
    parent = _parent(_text(proc, pid, "stat"))
    while parent:
        yield parent
        parent = _parent(_text(proc, parent, "stat"))


def _pids(proc: str) -> Iterator[int]:
    return (int(entry.name) for entry in Path(proc).iterdir() if entry.name.isdigit())


def _text(proc: str, pid: int, name: str) -> str:
    with suppress(OSError):
        return Path(proc, str(pid), name).read_bytes().decode(errors="replace")
    return ""


def read_environment(data: bytes) -> dict[str, str]:
    """The variables of interest of an `environ` file."""
    pairs = (entry.partition("=")[::2] for entry in data.decode(errors="replace").split("\0"))
    return {name: value for name, value in pairs if name in KEPT}


def in_job_cgroup(cgroup: str, slurm_job: str) -> bool:
    """Whether a `cgroup` file puts its process into the Slurm job (`…/job_123/step_0/…`)."""
    return bool(re.search(rf"/job_{re.escape(slurm_job)}(?:/|$)", cgroup, re.MULTILINE))


def _parent(stat: str) -> int | None:
    fields = stat.rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else None


def _command(proc: str, pid: int) -> list[str]:
    return _text(proc, pid, "cmdline").split("\0")[:-1] or [""]


def _describe(proc: str, pid: int, environment: Mapping[str, str], names: tuple[str, ...]) -> dict[str, Any]:
    rank, local_rank, world_size = (int(environment[name]) for name in names)
    devices = [device for device in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if device]
    command = _command(proc, pid)
    pids = re.search(r"^NSpid:\s*(.*)$", _text(proc, pid, "status"), re.MULTILINE)
    return {
        "rank": rank,
        "local_rank": local_rank,
        "world_size": world_size,
        "pid": pid,
        "pid_inside": int(pids.group(1).split()[-1]) if pids else pid,
        "start_time": _start_time(proc, pid),
        "script": script_of(command),
        "command": command,
        "host": os.uname().nodename,
        "device": devices[local_rank] if local_rank < len(devices) else None,
        "endpoint": f"{environment.get('MASTER_ADDR', '')}:{environment.get('MASTER_PORT', '')}".strip(":"),
    }


def _start_time(proc: str, pid: int) -> float:
    """Seconds since the epoch; `stat` has the start in clock ticks since boot."""
    ticks = int(_text(proc, pid, "stat").rpartition(")")[2].split()[19])
    boot = re.search(r"^btime (\d+)", Path(proc, "stat").read_text(), re.MULTILINE)
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return (int(boot.group(1)) if boot else time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)) + since_boot


def script_of(command: list[str]) -> str:
    """The script or module that an interpreter's command line runs; the program itself where it is no Python."""
    words = iter(command)
    program = next(words, "")
    if not _INTERPRETER.search(program):
        return program
    for word in words:
        if word in ("-m", "-c"):
            return next(words, "") if word == "-m" else "-c"
        if not word.startswith("-"):
            return word
        if word in ("-W", "-X"):
            next(words, "")
    return program
