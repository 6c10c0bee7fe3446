"""dlaunch on Slurm beside plain Slurm: time from the submission to the first rank, and `ps` over a long queue.

    python -m bench.slurm [--rounds 3] [--queue 500] [--json FILE]

Raises a real cluster in network namespaces (needs root). The plain side is a batch script that starts the same
torchrun on the same two nodes by srun, with `python -m torch.distributed.run` and the same rendezvous. `ps` is compared
with the squeue call that it makes; a counting `squeue` stands before the real one on PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from tests.lab import packages
from tests.lab.namespaces import wait_until
from tests.lab.slurm import SlurmLab
from tests.lab.slurm_config import ClusterShape

STAMP = "import os, time\nopen(os.environ['STAMP'] + os.environ['RANK'], 'w').write(str(time.time()))\n"
PLAIN = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=4 --output=plain.out
export OMP_NUM_THREADS=1
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash -c 'exec python3 -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --node-rank "$SLURM_NODEID" \\
    --rdzv-backend static --rdzv-endpoint "$0:29511" --max-restarts 0 stamp.py' "$head"
"""
COUNTING = '#!/bin/sh\necho call >>"$SQUEUE_CALLS"\nexec /usr/bin/squeue "$@"\n'


@dataclass(frozen=True)
class Result:
    """Seconds; `plain` and `dlaunch`: submission to the first rank's first line, by round."""

    plain: list[float]
    dlaunch: list[float]
    queue: int
    squeue: list[float]
    ps: list[float]
    squeue_calls_of_one_ps: int
    load: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.slurm", description="dlaunch beside plain Slurm")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queue", type=int, default=500, help="jobs that wait in the queue for `ps`")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = parser.parse_args()
    packages.install(packages.SLURM_LAB)
    with SlurmLab(ClusterShape(nodes=2, leaves=(("n1", "n2"),), accounting=False)) as lab:
        result = measure(lab, options.rounds, options.queue)
    print(table(result))
    if options.json:
        options.json.write_text(json.dumps(asdict(result), indent=1) + "\n")


def measure(lab: SlurmLab, rounds: int, queue: int) -> Result:
    """Both sides in alternation, after one unmeasured round that warms the file cache."""
    prepare(lab)
    plain, ours = [], []
    for number in range(rounds + 1):
        pair = (first_rank(lab, f"plain{number}", ["sbatch", "plain.sh"]), first_rank(lab, f"ours{number}", RUN))
        if number:
            plain.append(pair[0])
            ours.append(pair[1])
    fill(lab, queue)
    squeue = [
        timed(lab, ["squeue", "--noheader", "--states=all", "--user=root", "--format=%i %T %r %N"]) for _ in range(5)
    ]
    ps = [timed(lab, ["dlaunch", "ps", "--json"]) for _ in range(5)]
    calls = len((lab.work / "calls").read_text().splitlines()) // len(ps)
    return Result(plain, ours, queue, squeue, ps, calls, os.getloadavg()[0])


RUN = ["dlaunch", "run", "--detach", "stamp.py"]


def prepare(lab: SlurmLab) -> None:
    entry = {"kind": "slurm", "nodes": 2, "nproc_per_node": 1, "cpus_per_task": 4, "directory": str(lab.work / "jobs")}
    (lab.work / "inventory.yaml").write_text(yaml.safe_dump({"default": "hpc", "clusters": {"hpc": entry}}))
    (lab.work / "stamp.py").write_text(STAMP)
    (lab.work / "plain.sh").write_text(PLAIN)
    counting = lab.work / "bin" / "squeue"
    counting.parent.mkdir()
    counting.write_text(COUNTING)
    counting.chmod(0o755)


def environment(lab: SlurmLab, stamp: str = "") -> dict[str, str]:
    return {"DLAUNCH_HOME": str(lab.work / "home"), "STAMP": str(lab.work / stamp), "OMP_NUM_THREADS": "1"}


def first_rank(lab: SlurmLab, name: str, argv: list[str]) -> float:
    """Seconds from the call to the first line of the first rank; returns when the job has left the nodes."""
    began = time.time()
    lab.run_on_login(argv, env=environment(lab, name))
    stamps = [lab.work / f"{name}{rank}" for rank in (0, 1)]
    try:
        wait_until(lambda: all(stamp.exists() and stamp.read_text() for stamp in stamps), f"the ranks of {name}", 120)
    except TimeoutError as error:
        raise RuntimeError(lab.run_on_login(["dlaunch", "ps"], env=environment(lab)).stdout) from error
    lab.wait_for_nodes()
    return min(float(stamp.read_text()) for stamp in stamps) - began


def fill(lab: SlurmLab, queue: int) -> None:
    """One job holds the cluster, `queue` wait behind it."""
    sbatch = "sbatch --output=/dev/null --nodes=2 --exclusive --wrap='sleep 600'"
    lab.run_on_login(["sh", "-c", f"for job in $(seq {queue + 1}); do {sbatch}; done"], timeout=300)


def timed(lab: SlurmLab, argv: list[str]) -> float:
    """Seconds of a command; the squeue calls that dlaunch makes are counted."""
    counted = {"PATH": f"{lab.work}/bin:{lab.path}", "SQUEUE_CALLS": str(lab.work / "calls")}
    began = time.perf_counter()
    lab.run_on_login(argv, env={**environment(lab), **(counted if argv[0] == "dlaunch" else {})})
    return time.perf_counter() - began


def table(result: Result) -> str:
    plain, ours = statistics.median(result.plain), statistics.median(result.dlaunch)
    squeue, ps = statistics.median(result.squeue), statistics.median(result.ps)
    return (
        f"submission to first rank   plain sbatch {plain:5.2f} s   dlaunch {ours:5.2f} s   more {ours - plain:5.2f} s\n"
        f"{result.queue} jobs in the queue      squeue       {squeue:5.2f} s   ps      {ps:5.2f} s   "
        f"more {ps - squeue:5.2f} s   squeue calls {result.squeue_calls_of_one_ps}\n"
        f"medians; load average {result.load:.1f}"
    )


if __name__ == "__main__":
    main()
