"""Scripts that know nothing of dlaunch run unchanged: plain DDP, HF Trainer, accelerate, Lightning (docs/examples)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.dlaunch import Dlaunch, no_members, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SHAPE = ("--nodes", "1", "--nproc-per-node", "2")
STEPS = {"hf_trainer": 10, "accelerate_loop": 20, "lightning_fit": 20}
NEEDED = {"hf_trainer": "accelerate", "accelerate_loop": "accelerate", "lightning_fit": "pytorch_lightning"}
STUCK_STEP = 20  # of train.py with --wait-for


@pytest.fixture(scope="module")
def dlaunch(tmp_path_factory: pytest.TempPathFactory) -> Dlaunch:
    folder = tmp_path_factory.mktemp("own")
    for script in EXAMPLES.glob("*.py"):
        shutil.copy(script, folder)
    return Dlaunch(folder / "home", folder)


@pytest.fixture(scope="module")
def started(dlaunch: Dlaunch) -> Any:
    """All jobs, started at once to share the wait: name -> id."""
    names = [name for name in STEPS if _installed(NEEDED[name])]
    jobs = {name: dlaunch.detach(*SHAPE, f"{name}.py", "--", "--steps", str(STEPS[name])) for name in names}
    jobs["train"] = dlaunch.detach(*SHAPE, "train.py", "--", "--wait-for", str(dlaunch.work / "vocabulary"))
    yield jobs
    for job in jobs.values():
        dlaunch.run("stop", job, "--grace", "1")
        no_members(job)


def _installed(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


@pytest.mark.parametrize("name", STEPS)
def test_a_framework_runs_and_is_followed(name: str, dlaunch: Dlaunch, started: dict[str, str]) -> None:
    if name not in started:
        pytest.skip(f"{NEEDED[name]} is not installed")
    document = dlaunch.json("wait", started[name])
    assert (document["state"], document["attempts"]) == ("succeeded", 1)
    assert document["steps"] == STEPS[name] and document["last_loss"] > 0
    (shown,) = dlaunch.json("top", started[name], "--once")["jobs"]
    assert (shown["state"], len(shown["ranks"])) == ("succeeded", 2)
    loss = [rank["loss"] for rank in shown["ranks"] if "loss" in rank]
    assert loss and all(value > 0 for value in loss), shown["ranks"]
    assert "loss" in dlaunch.run("logs", started[name], "--rank", "0", "--grep", "loss").stdout
    row = next(row for row in dlaunch.json("ps")["jobs"] if row["job"] == started[name])
    assert (row["state"], row["ranks"]) == ("succeeded", 2)


def test_a_hang_of_plain_ddp_is_named_and_ends_with_its_cause(dlaunch: Dlaunch, started: dict[str, str]) -> None:
    job = started["train"]
    wait_until(lambda: f"step {STUCK_STEP} loss" in dlaunch.output(job, 0), "the step before the hang")

    def verdict() -> Any:
        found = dlaunch.doctor("hang", job, "--interval", "1")
        return found if found["answer"] != "none" else None

    finding = wait_until(verdict, "the hang shows")["findings"][0]
    assert (finding["code"], finding["ranks"]) == ("hang.absent_rank", [1])
    assert "wait_for" in finding["cause"]
    (shown,) = dlaunch.json("top", job, "--once")["jobs"]
    assert (shown["state"], shown["ranks"][0]["step"]) == ("running", STUCK_STEP)
    (dlaunch.work / "vocabulary").touch()
    assert dlaunch.json("wait", job)["state"] == "succeeded"
