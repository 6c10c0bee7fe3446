"""A rank that trains nothing: it makes steps, saves checkpoints, and goes on from the newest. Standard library only.

standin.py STEPS [FAIL_RANK FAIL_STEP]      the rank fails there in the first attempt
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

STEP_S = 0.05
SAVE_EVERY = 5


def save(folder, step):
    """By rename: a checkpoint that has its name is whole."""
    body = json.dumps({"step": step, "weights": [step * i for i in range(2000)]})
    draft = folder / f"draft-{os.getpid()}"
    draft.write_text(json.dumps({"sum": hashlib.sha256(body.encode()).hexdigest(), "body": body}))
    draft.replace(folder / f"step-{step:06}.json")


def load(path):
    """The step of a checkpoint. Raises ValueError where it is not whole."""
    document = json.loads(path.read_text())
    if hashlib.sha256(document["body"].encode()).hexdigest() != document["sum"]:
        raise ValueError(f"{path} is not what was written")
    return json.loads(document["body"])["step"]


def newest(folder):
    files = sorted(folder.glob("step-*.json"))
    return load(files[-1]) if files else 0


def main(steps, fail_rank=-1, fail_step=-1):
    rank, told = int(os.environ["RANK"]), []
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, lambda *_: told.append(True))
    folder = Path(os.environ["DLAUNCH_CHECKPOINT_DIR"], f"rank-{rank}")
    folder.mkdir(parents=True, exist_ok=True)
    step = newest(folder)
    with Path(os.environ["DLAUNCH_PROGRESS"]).open("a", buffering=1) as progress:
        while step < steps and not told:
            time.sleep(STEP_S)
            step += 1
            progress.write(json.dumps({"step": step, "time": time.time(), "step_s": STEP_S}) + "\n")
            if step % SAVE_EVERY == 0:
                save(folder, step)
            if (rank, step) == (fail_rank, fail_step) and os.environ["DLAUNCH_ATTEMPT"] == "0":
                raise ArithmeticError("planted")
    save(folder, step)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
