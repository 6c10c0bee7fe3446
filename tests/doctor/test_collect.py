"""A job's evidence by its name: of the newest attempt, or of one before it."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from doctor.cli import ddoctor
from doctor.collect import Archives, bundled
from doctor.discover import discover
from doctor.node.gather import Archive
from launcher.common.paths import JobPaths
from launcher.errors import InputError
from launcher.hosts.protocol import Answers, HostError
from launcher.jobs.record import JobRecord, RankRecord, write_record
from launcher.render import NodePlan


@pytest.fixture
def restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A job of one rank whose first attempt ran out of memory, and whose second goes on elsewhere."""
    monkeypatch.setenv("DLAUNCH_HOME", str(tmp_path))
    paths = JobPaths(tmp_path / "jobs" / "train-1")
    record = JobRecord(
        "train-1", "train", "local", "local", "failed", 1.0, {"script": "t.py"}, {"dp_shard": 1},
        [NodePlan(0, "n0", str(paths.root), sys.executable, "", "/")], [RankRecord(0, 0, 0, "n0", {"dp_shard": 0})],
        attempt=1, started=1.0,
    )  # fmt: skip
    write_record(paths.record, record)
    for attempt, text in enumerate(("torch.OutOfMemoryError: CUDA out of memory.\n", "step 1 loss 2.5\n")):
        paths.rank(0, attempt).mkdir(parents=True)
        paths.stderr(0, attempt).write_text(text)
    return "train-1"


def ask(*arguments: str) -> Any:
    return json.loads(CliRunner().invoke(ddoctor, ["diagnose", "--json", *arguments]).stdout)


def test_an_attempt_before_the_newest_tells_why_it_failed(restarted: str) -> None:
    assert ask(restarted, "--attempt", "0")["answer"] == "gpu.oom"
    assert ask(restarted)["answer"] != "gpu.oom"
    assert ask(restarted, "--attempt", "1")["answer"] != "gpu.oom"


def test_a_host_that_sends_nothing_or_half_an_archive_is_missing(tmp_path: Path) -> None:
    looked = Archive({"nodes/1/kernel.log": b"line\n"}).packed()
    cut = Archive({"nodes/2/kernel.log": random.Random(1).randbytes(4096)}).packed()[:2048]
    answers = Answers[Archives]({"n1": [looked], "n2": [cut]}, {"n0": HostError("n0", "no route")})
    found = bundled(tmp_path, "train-1", ["n0", "n1", "n2"], answers)
    assert found.missing[0] == "host n0: no route" and "n2" in found.missing[1] and len(found.missing) == 2
    assert (tmp_path / "nodes/1/kernel.log").read_bytes() == b"line\n"
    assert {gap.where for gap in discover([tmp_path]).gaps if gap.blinding} == {"host n0", "host n2"}


def test_an_attempt_that_was_not_made_is_refused(restarted: str) -> None:
    done = CliRunner().invoke(ddoctor, ["hang", restarted, "--attempt", "2"])
    assert isinstance(done.exception, InputError) and "train-1 has made attempts 0 to 1" in str(done.exception)
