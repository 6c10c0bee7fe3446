"""One frame as text and as the contract's document, from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.jobs.store import StoredJob
from tests.tui.test_feeds import append, job, sample

__all__ = ["job"]


def top(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from launcher.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, "top", *arguments], capture_output=True, text=True, timeout=60)


@pytest.fixture
def sampled(job: StoredJob) -> StoredJob:
    append(job, sample(0, time.time(), 7), sample(1, time.time(), 8))
    return job


def test_json_is_the_contracts_document(sampled: StoredJob) -> None:
    done = top("train", "--once", "--json")
    (document,) = json.loads(done.stdout)["jobs"]
    assert done.returncode == 0 and document["job"] == "train-1" and document["state"] == "running"
    assert [(rank["rank"], rank["host"], rank["step"], rank["state"]) for rank in document["ranks"]] == [
        (0, "n0", 7, "running"),
        (1, "n0", 7, "running"),
        (2, "n1", 8, "running"),
        (3, "n1", 8, "running"),
    ]


def test_json_without_a_job_shows_those_that_have_not_ended(sampled: StoredJob) -> None:
    assert [one["job"] for one in json.loads(top("--json").stdout)["jobs"]] == ["train-1"]


def test_text_has_a_line_for_each_rank(sampled: StoredJob) -> None:
    text = top("train-1", "--once").stdout
    assert "train  running  4 ranks on 2 hosts" in text and text.count(" running ") >= 4


def test_a_directory_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("step: 3 loss: 2.5\n")
    assert json.loads(top(str(tmp_path), "--json").stdout)["jobs"][0]["ranks"][0]["step"] == 3
    assert json.loads(top("--json").stdout) == {"schema": 1, "jobs": []}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["nothing-such"], 3, "this is no terminal"),
        (["nothing-such", "--once"], 2, "no job"),
        (["a", "--replay", "b"], 2, "JOB and --replay exclude each other"),
        (["a", "--once", "--record", "b"], 2, "--once and --record exclude each other"),
        (["a", "--json", "--on-hang", "true"], 2, "--once and --on-hang exclude each other"),
        (["a", "--serve", "8800", "--metrics", "9400"], 2, "--serve and --metrics exclude each other"),
        (["--patience", "0", "--once"], 2, "patience"),
    ],
)
def test_refusals(arguments: list[str], status: int, words: str) -> None:
    done = top(*arguments)
    assert done.returncode == status and words in done.stderr
