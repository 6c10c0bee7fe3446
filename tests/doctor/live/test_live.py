"""Real jobs on gloo that hang, or do not: looked at while they run, and never harmed by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.agent.recorder_hook import FIFO
from tests.support.dlaunch import wait_until

SCRIPT = Path(__file__).with_name("broken.py")
RANKS = 4
DEADLINE_S = 90


def call(program: str, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    argv = [str(Path(sys.executable).with_name(program)), *arguments]
    environment = {**os.environ, "DLAUNCH_HOME": str(home)}
    return subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=DEADLINE_S)


@contextmanager
def running(way: str, home: Path) -> Iterator[Path]:
    """A job of four ranks on two simulated nodes, in its bad step or, when healthy, well under way."""
    shape = ("--nodes", "2", "--nproc-per-node", "2", "--name", "drill")
    started = call("dlaunch", "run", str(SCRIPT), *shape, "--detach", "--json", "--", way, home=home)
    assert started.returncode == 0, started.stderr
    folder = home / "jobs" / json.loads(started.stdout)["job"]
    try:
        wait_for_step(folder)
        yield folder
    finally:
        call("dlaunch", "stop", "drill", home=home)


def wait_for_step(folder: Path) -> None:
    """Until no rank has written a step for two seconds, or all are past the bad step."""
    files = [folder / "ranks" / str(rank) / "attempt-0" / "progress.jsonl" for rank in range(RANKS)]
    deadline, sizes, still = time.monotonic() + DEADLINE_S, [0], 0
    while time.monotonic() < deadline:
        now = [file.stat().st_size if file.exists() else 0 for file in files]
        still = still + 1 if now == sizes and min(now) > 0 else 0
        if still >= 20 or min(now) > 3000:
            return
        sizes = now
        time.sleep(0.1)
    pytest.fail("the job did not come to its step")


def all_stand(folder: Path, ranks: int) -> bool:
    """Whether all ranks of a job have dumped what they know since their last step."""
    attempts = [folder / "ranks" / str(rank) / "attempt-0" for rank in range(ranks)]
    pairs = [(attempt / "progress.jsonl", attempt / f"fr.{rank}") for rank, attempt in enumerate(attempts)]
    return all(
        progress.exists() and dump.exists() and dump.stat().st_mtime > progress.stat().st_mtime
        for progress, dump in pairs
    )


def verdict(question: str, home: Path) -> dict[str, Any]:
    done = call("ddoctor", question, "drill", "--json", "--interval", "1", home=home)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize(
    ("way", "code", "sub_cause"),
    [
        ("stop", "hang.absent_rank", "stopped"),
        ("die", "hang.absent_rank", "dead"),
        ("python", "hang.absent_rank", "python"),
        ("lock", "hang.absent_rank", "file_lock"),
        ("skip", "hang.cross_group_cycle", None),
    ],
)
def test_a_hang_is_named_while_it_lasts(way: str, code: str, sub_cause: str | None, tmp_path: Path) -> None:
    with running(way, tmp_path):
        found = verdict("hang", tmp_path)
    finding = found["findings"][0]
    assert (found["answer"], finding["ranks"]) == (code, [3]), found
    assert finding["detail"].get("sub_cause") == sub_cause


def test_a_hang_is_named_after_somebody_stopped_the_job(tmp_path: Path) -> None:
    with running("data", tmp_path) as folder:
        wait_until(lambda: all_stand(folder, RANKS), "every rank tells where it stands")
    found = verdict("hang", tmp_path)
    finding = found["findings"][0]
    assert (found["answer"], finding["ranks"]) == ("hang.absent_rank", [3]), found
    assert finding["detail"]["sub_cause"] == "dataloader"


def test_a_healthy_job_is_healthy_and_goes_on(tmp_path: Path) -> None:
    with running("none", tmp_path) as folder:
        found = verdict("diagnose", tmp_path)
        assert found["answer"] == "none", found["findings"][0]
        found = verdict("hang", tmp_path)
        assert found["answer"] == "none", found["findings"][0]
        progress = folder / "ranks" / "0" / "attempt-0" / "progress.jsonl"
        size = progress.stat().st_size
        time.sleep(1)
        assert progress.stat().st_size > size
        assert (folder / "ranks" / "0" / "attempt-0" / FIFO).exists()
