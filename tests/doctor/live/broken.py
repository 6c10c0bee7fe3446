"""A small training loop on gloo that goes wrong at step 5 of rank 3, in the way that its argument names."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS, BAD_STEP, BAD_RANK, LONG = 100_000, 5, 3, 600


def load_batch(bad: bool, way: str) -> torch.Tensor:
    if bad and way == "data":
        time.sleep(LONG)
    return torch.ones(8)


def save_checkpoint(bad: bool, way: str) -> None:
    if bad and way == "checkpoint":
        time.sleep(LONG)


def wait_for_lock(folder: Path) -> None:
    held = (folder / "lock").open("w")
    if os.fork() == 0:
        theirs = (folder / "lock").open("w")
        fcntl.flock(theirs, fcntl.LOCK_EX)
        time.sleep(LONG)
    time.sleep(1)
    fcntl.flock(held, fcntl.LOCK_EX)


def go_wrong(way: str, batch: torch.Tensor) -> None:
    if way == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif way == "die":
        os._exit(0)
    elif way == "python":
        while True:
            pass
    elif way == "lock":
        wait_for_lock(Path(os.environ["DLAUNCH_RANK_DIR"]))
    elif way == "extra":
        dist.broadcast(batch.clone(), 0)


def main(way: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 1], group_desc="tp"), dist.new_group([2, 3], group_desc="tp")]
    weight = torch.ones(8)
    with Path(os.environ["DLAUNCH_PROGRESS"]).open("a", buffering=1) as progress:
        for step in range(STEPS):
            began = time.time()
            bad = rank == BAD_RANK and step == BAD_STEP
            batch = load_batch(bad, way)
            if bad:
                go_wrong(way, batch)
            if not (bad and way == "skip"):
                dist.all_reduce(batch, group=pairs[rank // 2])
            if way == "slow" and rank == BAD_RANK:
                time.sleep(0.02)
            dist.all_reduce(batch)
            save_checkpoint(bad, way)
            weight -= 1e-3 * batch
            time.sleep(0.01)
            loss = float(weight.square().sum())
            progress.write(
                json.dumps({"step": step, "time": time.time(), "step_s": time.time() - began, "loss": loss}) + "\n"
            )


if __name__ == "__main__":
    main(sys.argv[1])
