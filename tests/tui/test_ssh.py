"""`dlaunch top` over real SSH hosts that share no files with the login node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.test_ssh_jobs import LabJobs, jobs, lab
from tests.support.dlaunch import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
__all__ = ["jobs", "lab"]

STEPS = """
import time
for step in range(100000):
    print(f"step: {step} loss: {9 / (step + 1):.4f}", flush=True)
    time.sleep(0.2)
"""


def frame(jobs: LabJobs, job: str) -> dict[str, Any]:
    (document,) = jobs.json("top", job, "--once")["jobs"]
    return dict(document)


def test_ranks_on_ssh_hosts_are_seen_with_their_steps_and_a_lost_host_is_named(jobs: LabJobs) -> None:
    job = jobs.json("run", "--detach", jobs.script(STEPS), "--nodes", "3")["job"]
    wait_until(lambda: jobs.record(job)["state"] == "running", "the job runs")
    wait_until(lambda: all(rank["step"] is not None for rank in frame(jobs, job)["ranks"]), "all ranks make steps")
    seen = frame(jobs, job)
    assert [(rank["rank"], rank["host"]) for rank in seen["ranks"]] == [(0, "n1"), (1, "n2"), (2, "n3")]
    assert seen["lost_hosts"] == {} and seen["alarms"] == []
    jobs.lab.cut("n2")
    lost = frame(jobs, job)
    assert list(lost["lost_hosts"]) == ["n2"]
    assert [rank["state"] for rank in lost["ranks"]][1] == "unknown" and lost["ranks"][0]["step"] >= 0
