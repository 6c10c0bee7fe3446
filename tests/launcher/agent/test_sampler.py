"""The sampler against real processes and files that grow while it looks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from launcher.agent.rank_progress import RankProgress
from launcher.agent.sampler import NodeSampler
from launcher.agent.tail import Tail
from launcher.common import samples
from launcher.common.paths import JobPaths
from launcher.common.samples import GONE, STARTING, STOPPED, NodeSample

DEADLINE_S = 10.0


@pytest.fixture
def paths(tmp_path: Path) -> JobPaths:
    paths = JobPaths(tmp_path)
    for rank in (0, 1):
        paths.rank(rank, 0).mkdir(parents=True)
    return paths


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(1)"])
    yield child
    child.kill()
    child.wait()


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_progress_comes_from_the_records(paths: JobPaths) -> None:
    write(paths.stdout(0, 0), "step: 99 loss: 9.0\n")
    write(paths.progress(0, 0), '{"step": 3, "time": 5.5, "loss": 2.5, "data_s": 0.5}\n{"step": 4, "ti')
    rank = NodeSampler(paths, 0, "n0", 0, [0]).sample({}).ranks[0]
    assert (rank.step, rank.loss, rank.data_s, rank.progress_time, rank.log_bytes) == (3, 2.5, 0.5, 5.5, 19)


def test_progress_comes_from_the_log_where_there_are_no_records(paths: JobPaths) -> None:
    seconds = iter([10.0, 20.0, 30.0])
    progress = RankProgress(paths, 1, 0, clock=lambda: next(seconds))
    write(paths.stderr(1, 0), " 19%|█▊        | 12/97 [01:50<08:31,  6.5s/it]\r")
    assert progress.look() is None
    write(paths.stderr(1, 0), "\n")
    first = progress.look()
    write(paths.stdout(1, 0), "{'loss': 2.5, 'learning_rate': 4e-05, 'epoch': 0.25}\n")
    second = progress.look()
    assert first is not None and (first.step, first.time) == (12, 10.0)
    assert second is not None and (second.step, second.loss) == (12, 2.5)


def test_a_flood_is_skipped_up_to_its_newest_part(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "log", most=10)
    write(tail.path, "x" * 100 + "newest\n")
    assert tail.new() == b"xxxnewest\n"
    assert tail.new() == b""


def test_a_file_that_shrank_is_read_anew(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "log")
    write(tail.path, "old and long\n")
    tail.new()
    tail.path.write_text("new\n")
    assert tail.new() == b"new\n"


def test_states_of_a_process(paths: JobPaths, process: subprocess.Popen[bytes]) -> None:
    sampler = NodeSampler(paths, 0, "n0", 0, [0, 1])
    assert [rank.state for rank in sampler.sample({}).ranks] == [STARTING, STARTING]
    rank = sampler.sample({0: process.pid}).ranks[0]
    assert rank.pid == process.pid and rank.rss is not None and rank.rss > 1_000_000
    os.kill(process.pid, signal.SIGSTOP)
    _until(lambda: sampler.sample({0: process.pid}).ranks[0].state == STOPPED)
    os.kill(process.pid, signal.SIGKILL)
    _until(lambda: sampler.sample({0: process.pid}).ranks[0].state == GONE)


def test_the_file_holds_samples_and_stays_bounded(paths: JobPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.agent.sampler.LOG_BYTES", 4000)
    sampler = NodeSampler(paths, 7, "n7", 0, [0, 1])
    for _ in range(60):
        sampler.write({0: os.getpid()})
    lines = paths.samples(7).read_bytes().splitlines()
    assert paths.samples(7).stat().st_size <= 4000 < samples.LOG_BYTES
    last = NodeSample.from_json(json.loads(lines[-1]))
    assert (last.node_rank, last.host, [rank.rank for rank in last.ranks]) == (7, "n7", [0, 1])
    assert all(json.loads(line)["node_rank"] == 7 for line in lines)


def test_it_costs_less_than_a_percent_of_a_core(paths: JobPaths) -> None:
    """Eight ranks, one sample a second."""
    for rank in range(8):
        paths.rank(rank, 0).mkdir(parents=True, exist_ok=True)
    sampler = NodeSampler(paths, 0, "n0", 0, range(8))
    mine = psutil.Process().pid
    pids = dict.fromkeys(range(8), mine)
    sampler.write(pids)
    before = time.thread_time()
    for step in range(50):
        for rank in range(8):
            write(paths.progress(rank, 0), json.dumps({"step": step, "time": 1.0, "loss": 2.5}) + "\n")
        sampler.write(pids)
    assert (time.thread_time() - before) / 50 < 0.01


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
