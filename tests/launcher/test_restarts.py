"""A restart is a new attempt of all nodes, from the last complete checkpoint."""

from __future__ import annotations

import json

import pytest

from tests.support.dlaunch import SAY_AND_WAIT, Dlaunch, ready, wait_until

pytestmark = pytest.mark.timeout(300)
TRAIN = ("workloads/hsdp.py", "--nodes", "2", "--nproc-per-node", "1")
FLAGS = ("--steps", "6", "--batch", "4", "--data", "synthetic", "--checkpoint-every", "2")
DIES_ONCE = """\
import os, runpy, sys
if os.environ["DLAUNCH_ATTEMPT"] == "0":
    sys.argv += ["--fault", "die:rank=1,step=5"]
import workloads.hsdp
runpy.run_path(workloads.hsdp.__file__, run_name="__main__")
"""


def losses(dlaunch: Dlaunch, job: str, attempts: int) -> dict[int, float]:
    """step -> loss of rank 0, the last attempt's where a step was done twice."""
    found = {}
    for attempt in range(attempts):
        for line in dlaunch.paths(job).progress(0, attempt).read_text().splitlines():
            record = json.loads(line)
            found[record["step"]] = record["loss"]
    return found


def test_training_goes_on_from_the_checkpoint_with_the_same_losses(dlaunch: Dlaunch) -> None:
    whole = dlaunch.json("run", *TRAIN, "--", *FLAGS)
    script = dlaunch.script(DIES_ONCE)
    broken = dlaunch.json("run", script, *TRAIN[1:], "--max-restarts", "1", "--", *FLAGS)
    assert (broken["state"], broken["attempts"]) == ("succeeded", 2)
    second = [json.loads(line) for line in dlaunch.paths(broken["job"]).progress(0, 1).read_text().splitlines()]
    assert second[0]["step"] > 1
    assert losses(dlaunch, broken["job"], 2) == losses(dlaunch, whole["job"], 1)


def test_an_elastic_job_takes_what_there_is(dlaunch: Dlaunch) -> None:
    job = dlaunch.detach(dlaunch.script(SAY_AND_WAIT), "--nodes", "2:3", "--nproc-per-node", "1", "--no-torchrun")
    ready(dlaunch.work, [0, 1, 2])
    assert len(dlaunch.record(job).nodes) == 3
    (dlaunch.work / "go").touch()
    assert dlaunch.json("wait", job)["state"] == "succeeded"


def test_restarts_that_are_used_up_name_the_last_failure(dlaunch: Dlaunch) -> None:
    script = dlaunch.script("import os; raise ValueError('attempt ' + os.environ['DLAUNCH_ATTEMPT'])")
    document = dlaunch.json("run", script, "--nodes", "1", "--nproc-per-node", "1", "--max-restarts", "1", status=1)
    assert document["attempts"] == 2
    assert document["first_failure"]["error"] == "ValueError: attempt 1"


def test_a_graceful_stop_writes_a_checkpoint(dlaunch: Dlaunch) -> None:
    job = dlaunch.detach(*TRAIN, "--", "--steps", "100000", "--batch", "4", "--data", "synthetic")
    wait_until(lambda: dlaunch.paths(job).progress(0, 0).exists(), "training begins")
    assert dlaunch.json("stop", job, "--grace", "60")["state"] == "stopped"
    assert list(dlaunch.paths(job).checkpoints.iterdir())
