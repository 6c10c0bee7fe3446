"""What torchrun starts in the place of each rank: it prepares the rank's environment and becomes the user's command.

Standard library only, run by its path under the job's Python. After `exec` nothing of it is left: same pid, no cost.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_PTRACER = 0x59616D61
NCCL_LOG_SUBSYSTEMS = "INIT,NET,GRAPH,ENV"


def rank_environment(rank_directory: str, environ: Mapping[str, str], shim: str = __file__) -> dict[str, str]:
    """The variables that differ between ranks, and those of the recorder and NCCL where `environ` sets them not.

    Files of the rank lie in `rank_directory` (JobPaths.rank). Both the old and the new names of a variable are set.
    The sitecustomize beside `shim`, the path of this file on the rank's host, lets the doctor ask for dumps.
    """
    dump = f"{rank_directory}/fr."
    wanted = {
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_FR_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": dump,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dump,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{rank_directory}/fr.pipe.",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": NCCL_LOG_SUBSYSTEMS,
        "NCCL_DEBUG_FILE": f"{rank_directory}/nccl.log",
    }
    search_path = os.pathsep.join(filter(None, (f"{Path(shim).parent}/startup", environ.get("PYTHONPATH"))))
    ours = {
        "DLAUNCH_RANK_DIR": rank_directory,
        "DLAUNCH_PROGRESS": f"{rank_directory}/progress.jsonl",
        "PYTHONPATH": search_path,
    }
    nics = json.loads(environ.get("DLAUNCH_NICS", "[]"))
    if nics:
        ours["DLAUNCH_NIC"] = nics[int(environ["LOCAL_RANK"])]
    return {**{name: value for name, value in wanted.items() if name not in environ}, **ours}


def die_with_parent() -> None:
    """End this process when its parent ends. A parent that ends meanwhile is noticed too."""
    parent = os.getppid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def prepare_launcher() -> None:
    """For torchrun: it ends with its agent, and a warning that Slurm sends to all processes does not end it."""
    die_with_parent()
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def allow_tracer(pid: int) -> None:
    """Let `pid` and its descendants attach (py-spy) under ptrace_scope=1. Kernels without Yama refuse: no matter."""
    _prctl(PR_SET_PTRACER, pid)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def bind_cpus(local_rank: int, plan: str) -> None:
    """Pin this rank to its CPUs: `plan` is a JSON list with one list of CPU numbers for each local rank."""
    cpus = json.loads(plan)[local_rank] if plan else []
    allowed = set(cpus) & os.sched_getaffinity(0)
    if allowed:
        os.sched_setaffinity(0, allowed)


def redirect(directory: Path) -> None:
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)


def main(command: list[str]) -> None:
    """Prepare this rank and exec `command`. Reads torchrun's variables and the DLAUNCH_* that the agent set."""
    die_with_parent()
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    allow_tracer(int(os.environ["DLAUNCH_AGENT_PID"]))
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    attempt = os.environ["DLAUNCH_ATTEMPT"]
    directory = Path(os.environ["DLAUNCH_DIR"]) / "ranks" / str(rank) / f"attempt-{attempt}"
    redirect(directory)
    os.environ.update(rank_environment(str(directory), os.environ))
    bind_cpus(local_rank, os.environ.get("DLAUNCH_CPUS", ""))
    (directory / "pid").write_text(f"{os.getpid()}\n")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
