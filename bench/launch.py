"""What starting a job costs: `dlaunch run` beside the same bare torchruns, and the commands beside their peers.

    python -m bench.launch [--rounds 3] [--json FILE]

Both sides train the same workload on four simulated nodes of two ranks, in alternation. Seconds to the first step are
taken from the progress records of rank 0, on both sides; whole runs as the command's wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from launcher.common.paths import JobPaths
from launcher.jobs.record import JobRecord, write_record

BIN = Path(sys.executable).parent
WORKLOAD = Path(__file__).parents[1] / "workloads" / "hsdp.py"
STEPS = ["--steps", "20"]
NODES, RANKS = 4, 2
JOBS_ON_RECORD = 200


@dataclass(frozen=True)
class Run:
    """One run; seconds since its command was given."""

    first_step_s: float
    whole_s: float


@dataclass(frozen=True)
class Result:
    """What is printed and written; `commands` are medians in seconds by command line."""

    rounds: int
    cpus: int | None
    dlaunch: list[Run]
    torchrun: list[Run]
    commands: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options.rounds, Path(folder))
    print(table(result))
    if options.json:
        options.json.write_text(json.dumps(asdict(result), indent=1))


def measure(rounds: int, folder: Path) -> Result:
    ours, bare = [], []
    for number in range(rounds):
        ours.append(with_dlaunch(folder / f"ours-{number}"))
        bare.append(with_torchrun(folder / f"bare-{number}"))
    return Result(rounds, os.cpu_count(), ours, bare, commands(folder))


def with_dlaunch(home: Path) -> Run:
    argv = [str(BIN / "dlaunch"), "run", str(WORKLOAD), "--nodes", str(NODES), "--", *STEPS]
    began = time.time()
    subprocess.run(argv, env={**os.environ, "DLAUNCH_HOME": str(home)}, check=True, capture_output=True)
    whole = time.time() - began
    (job,) = (home / "jobs").iterdir()
    return Run(first_step(JobPaths(job).progress(0, 0)) - began, whole)


def with_torchrun(folder: Path) -> Run:
    """What people type without us: one torchrun for each node, with static rendezvous."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    shim = folder / "per_rank.py"  # each rank writes its own progress file, as under dlaunch
    shim.write_text(
        "import os, runpy, sys\n"
        f"os.environ['DLAUNCH_PROGRESS'] = {str(folder)!r} + '/progress-' + os.environ['RANK']\n"
        "sys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    shape = ["--nnodes", str(NODES), "--nproc-per-node", str(RANKS), "--max-restarts", "0"]
    meet = ["--rdzv-backend", "static", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment["DLAUNCH_CHECKPOINT_DIR"] = str(folder / "checkpoints")
    began = time.time()
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *shape, *meet, "--node-rank", str(node), str(shim),
             str(WORKLOAD), *STEPS],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for node in range(NODES)
    ]  # fmt: skip
    statuses = [node.wait() for node in nodes]
    if any(statuses):
        raise RuntimeError(f"torchrun ended with {statuses}")
    return Run(first_step(folder / "progress-0") - began, time.time() - began)


def first_step(progress: Path) -> float:
    with progress.open() as file:
        return float(json.loads(file.readline())["time"])


def commands(folder: Path) -> dict[str, float]:
    """Median seconds of short commands; torchx is beside them where it is installed."""
    home = folder / "records"
    for number in range(JOBS_ON_RECORD):
        job = f"bench-{number:03}"
        record = JobRecord(job, "bench", "local", "local", "succeeded", float(number), {}, {"dp_replicate": 1})
        write_record(JobPaths(home / "jobs" / job).record, record)
    asked = [[str(BIN / "dlaunch"), "--help"], [str(BIN / "ddoctor"), "--help"], [str(BIN / "dlaunch"), "ps"]]
    asked.append([sys.executable, "-m", "torch.distributed.run", "--help"])
    if torchx := shutil.which("torchx", path=f"{BIN}:{os.environ['PATH']}"):
        asked.append([torchx, "--help"])
    return {" ".join(Path(word).name for word in argv): median(lambda argv=argv: run(argv, home)) for argv in asked}


def run(argv: list[str], home: Path) -> None:
    subprocess.run(argv, env={**os.environ, "DLAUNCH_HOME": str(home)}, check=True, capture_output=True)


def median(action: Callable[[], None], times: int = 9) -> float:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def table(result: Result) -> str:
    lines = [f"{result.rounds} rounds, {NODES} nodes x {RANKS} ranks, {result.cpus} CPUs; medians in seconds", ""]
    lines.append(f"{'':22}{'dlaunch run':>12}{'4 torchruns':>12}{'difference':>12}")
    for name, label in (("first_step_s", "to the first step"), ("whole_s", "whole run")):
        ours = statistics.median(getattr(run, name) for run in result.dlaunch)
        bare = statistics.median(getattr(run, name) for run in result.torchrun)
        lines.append(f"{label:22}{ours:12.2f}{bare:12.2f}{ours - bare:+12.2f} ({ours / bare - 1:+.1%})")
    lines.append("")
    lines += [f"{seconds:8.3f}  {command}" for command, seconds in result.commands.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
