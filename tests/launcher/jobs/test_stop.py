"""`dlaunch stop` of a job that has ended: what was left behind is ended, and what still is left is told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from launcher.jobs.record import JobRecord, write_record
from launcher.render import NodePlan
from tests.support.dlaunch import Dlaunch

JOB = "left-261130-120000-abcd"


def ended(dlaunch: Dlaunch, **fields: Any) -> None:
    """The record of a job that failed on one simulated node."""
    paths = dlaunch.paths(JOB)
    node = NodePlan(0, "node0", str(paths.root), sys.executable, "", "/")
    facts = {
        "job": JOB,
        "name": "left",
        "cluster": "local",
        "kind": "local",
        "state": "failed",
        "created": 1.0,
        "spec": {},
        "mesh": {"dp_replicate": 1},
        "nodes": (node,),
        "exit_status": 1,
    }
    write_record(paths.record, JobRecord(**{**facts, **fields}))


@pytest.fixture
def survivor() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"], env={**os.environ, "DLAUNCH_JOB": JOB}) as process:
        yield process
        process.kill()


def test_a_job_that_is_over_as_a_whole_needs_nothing(dlaunch: Dlaunch) -> None:
    ended(dlaunch, reason="rank 1 on node0: ValueError: operands could not be broadcast together")
    document = dlaunch.json("stop", JOB)
    assert (document["state"], document["unreached"], document["survivors"]) == ("failed", [], [])


def test_a_process_that_outlived_its_job_is_ended_later(dlaunch: Dlaunch, survivor: subprocess.Popen[bytes]) -> None:
    ended(dlaunch, survivors=(f"node0:{survivor.pid}",))
    assert dlaunch.json("stop", JOB)["survivors"] == []
    assert survivor.wait(10) < 0
    assert not dlaunch.record(JOB).survivors


def test_a_host_that_is_still_away_is_told(dlaunch: Dlaunch) -> None:
    nobody = {"name": "n9", "address": "127.0.0.1", "port": 1}
    ended(dlaunch, kind="ssh", addresses={"n9": nobody}, unreached=("n9",))
    done = dlaunch.run("stop", JOB)
    assert done.returncode == 3 and "not reached: n9" in done.stderr
    assert list(dlaunch.record(JOB).unreached) == ["n9"]
