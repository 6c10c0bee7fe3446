"""Feeds: the table of latest values, a job's directory, recordings, any directory of logs."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launcher.common.paths import JobPaths
from launcher.common.samples import NodeSample, RankSample, encode
from launcher.errors import InputError
from launcher.jobs.record import JobRecord, RankRecord, write_record
from launcher.jobs.store import StoredJob, append_event
from launcher.render import NodePlan
from tests.tui.conftest import Clock
from tui.feed.directory import FilesFeed, log_files
from tui.feed.live import SILENT_S, LiveFeed
from tui.feed.recording import Recorder, RecordingFeed, SamplesFeed
from tui.feed.simulated import simulated_job
from tui.feed.source import of_directory, open_source
from tui.feed.table import HISTORY_POINTS, RankTable
from tui.snapshot import STATES


def record_of(root: Path, nodes: int = 2, per_node: int = 2, **changes: Any) -> JobRecord:
    plans = [NodePlan(node, f"n{node}", str(root), sys.executable, "", "/") for node in range(nodes)]
    ranks = [
        RankRecord(rank, rank // per_node, rank % per_node, f"n{rank // per_node}", {"dp_shard": rank})
        for rank in range(nodes * per_node)
    ]
    record = JobRecord(
        "train-1", "train", "local", "local", "running", 1.0, {"script": "t.py"}, {"dp_shard": len(ranks)}, plans,
        ranks, started=1.0,
    )  # fmt: skip
    return record.with_(**changes)


def sample(node: int, time: float, step: int, **changes: Any) -> NodeSample:
    ranks = [RankSample(2 * node + local, 100, "running", step=step, loss=2.5, progress_time=time) for local in (0, 1)]
    return NodeSample(time, node, f"n{node}", ranks=ranks, **changes)


@pytest.fixture
def job(home: Path) -> StoredJob:
    paths = JobPaths(home / "jobs" / "train-1")
    write_record(paths.record, record_of(paths.root))
    for node in (0, 1):
        paths.node(node).mkdir(parents=True)
    return StoredJob(record_of(paths.root), paths)


def append(job: StoredJob, *samples: NodeSample) -> None:
    for one in samples:
        with job.paths.samples(one.node_rank).open("ab") as file:
            file.write(encode(one))


def table(nodes: int = 2) -> RankTable:
    return RankTable(simulated_job({"dp_shard": 2 * nodes}, 2))


def test_the_table_keeps_the_latest_of_each_rank() -> None:
    ranks = table()
    ranks.apply([sample(0, 10.0, 3).to_json(), sample(1, 10.0, 4).to_json()])
    ranks.apply([sample(0, 11.0, 5).to_json()])
    snapshot = ranks.snapshot(11.0)
    assert snapshot.step.tolist() == [5, 5, 4, 4] and snapshot.nodes.seen.tolist() == [11, 10]
    assert [STATES[code] for code in snapshot.state] == ["running"] * 4


def test_where_a_rank_stands_is_kept_until_it_moves() -> None:
    ranks = table()
    stands = RankSample(0, 100, "sleeping", step=3, collective="all_\x1breduce #26 of pp")
    ranks.apply([sample(1, 10.0, 4).to_json(), NodeSample(10.0, 0, "n0", ranks=[stands]).to_json()])
    assert ranks.snapshot(10.0).collectives == {0: "all_\\x1breduce #26 of pp"}
    ranks.apply([sample(1, 11.0, 4).to_json()])
    assert ranks.snapshot(11.0).collectives
    ranks.apply([sample(0, 12.0, 5).to_json()])
    assert ranks.snapshot(12.0).collectives == {}


def test_a_snapshot_is_frozen() -> None:
    ranks = table()
    ranks.apply([sample(0, 10.0, 3).to_json()])
    before = ranks.snapshot(10.0)
    ranks.apply([sample(0, 11.0, 4).to_json()])
    assert before.step[0] == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"node_rank": 7, "time": 1.0, "ranks": {"rank": [0]}},
        {"node_rank": 0, "time": 1.0, "ranks": []},
        {"node_rank": 0, "time": 1.0, "ranks": {"rank": [99]}},
        {"node_rank": 0, "time": 1.0, "ranks": {"rank": ["0"]}},
        {"node_rank": 0, "time": 1.0, "ranks": {"rank": [0, 1], "step": [1]}},
        {"node_rank": 0, "time": "soon", "ranks": {"rank": [0]}},
        {"node_rank": 0, "time": 1.0, "attempt": 3, "ranks": {"rank": [0], "step": [1]}},
    ],
)
def test_what_is_no_sample_of_this_attempt_changes_nothing(wrong: dict[str, Any]) -> None:
    ranks = table()
    ranks.apply([wrong])
    assert np.isnan(ranks.snapshot(1.0).step).all()


def test_odd_values_are_unknown_and_nan_stays_nan() -> None:
    ranks = table()
    ranks.apply([{"node_rank": 0, "time": 1.0, "ranks": {"rank": [0, 1], "loss": ["nan", "x"], "step": [None, 3]}}])
    snapshot = ranks.snapshot(1.0)
    assert np.isnan(snapshot.loss[:2]).all() and snapshot.step[1] == 3


def test_a_new_attempt_begins_with_nothing_known_but_keeps_the_history() -> None:
    ranks = table()
    ranks.apply([sample(0, 10.0, 3).to_json()])
    ranks.extend_history()
    ranks.reshape(replace(ranks.job, attempt=1))
    snapshot = ranks.snapshot(11.0)
    assert np.isnan(snapshot.step).all() and len(snapshot.history.time) == 1


def test_the_history_is_bounded_and_keeps_its_beginning() -> None:
    ranks = table()
    for second in range(3 * HISTORY_POINTS):
        ranks.apply([sample(0, float(second), second).to_json()])
        ranks.extend_history()
    history = ranks.snapshot(0.0).history
    assert len(history.time) <= HISTORY_POINTS and history.time[0] == 0 and history.time[-1] > 2.9 * HISTORY_POINTS


def test_a_live_feed_reads_samples_record_and_events(job: StoredJob, clock: Clock) -> None:
    feed = LiveFeed(job, clock)
    append(job, sample(0, clock.now, 7), sample(1, clock.now, 8))
    append_event(job.paths, "started", attempt=1)
    first = feed.poll()
    assert first.step.tolist() == [7, 7, 8, 8] and first.events[-1].text.startswith("started")
    write_record(job.paths.record, job.record.with_(state="succeeded", reason="all ranks ended"))
    assert feed.poll().job.state == "succeeded"


def test_a_host_without_samples_is_lost_and_comes_back(job: StoredJob, clock: Clock) -> None:
    feed = LiveFeed(job, clock)
    append(job, sample(0, clock.now, 7), sample(1, clock.now, 7))
    feed.poll()
    clock.now += SILENT_S + 1
    append(job, sample(0, clock.now, 8))
    lost = feed.poll()
    assert list(lost.nodes.lost) == [1] and STATES[lost.state[2]] == "unknown" and lost.step[0] == 8
    append(job, sample(1, clock.now, 9))
    assert feed.poll().nodes.lost == {}


def test_of_a_large_job_the_nodes_are_read_in_turn_after_all_at_first(home: Path, clock: Clock) -> None:
    paths = JobPaths(home / "jobs" / "train-1")
    large = StoredJob(record_of(paths.root, nodes=150), paths)
    write_record(paths.record, large.record)
    for node in range(150):
        paths.node(node).mkdir(parents=True)
    append(large, *(sample(node, clock.now, 7) for node in range(150)))
    feed = LiveFeed(large, clock)
    assert set(feed.poll().step.tolist()) == {7}
    append(large, *(sample(node, clock.now, 8) for node in range(150)))
    assert sorted(feed.poll().step.tolist()) == [7] * 150 + [8] * 150
    assert set(feed.poll().step.tolist()) == {8}


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
def test_a_clock_that_is_off_is_seen_through(job: StoredJob, clock: Clock, ahead: float) -> None:
    feed = LiveFeed(job, clock)
    for _ in range(2):
        clock.now += 1
        append(job, sample(0, clock.now + ahead, 7), sample(1, clock.now, 7))
        snapshot = feed.poll()
    assert snapshot.nodes.seen.tolist() == [clock.now] * 2 and set(snapshot.progress_time.tolist()) == {clock.now}
    assert snapshot.nodes.lost == {}


def test_an_old_sample_is_no_clock_that_is_off(job: StoredJob, clock: Clock) -> None:
    append(job, sample(0, clock.now - 900, 7), sample(1, clock.now, 7))
    feed = LiveFeed(job, clock)
    clock.now += SILENT_S - 1
    feed.poll()
    assert list(feed.poll().nodes.lost) == [0]


def test_half_a_line_waits_for_its_other_half(job: StoredJob, clock: Clock) -> None:
    feed = LiveFeed(job, clock)
    line = encode(sample(0, clock.now, 7))
    job.paths.samples(0).write_bytes(line + line[:30])
    assert feed.poll().step[0] == 7


def test_what_was_recorded_can_be_stepped_through(job: StoredJob, clock: Clock, tmp_path: Path) -> None:
    feed = LiveFeed(job, clock)
    file = tmp_path / "watched.top.gz"
    feed.record(file)
    for second in range(30):
        append(job, sample(0, clock.now, second), sample(1, clock.now, second))
        feed.poll()
        clock.now += 1
    feed.close()
    replay_clock = Clock()
    replay = RecordingFeed(file, replay_clock)
    assert replay.poll().step[0] == 0
    replay_clock.now += 5
    assert replay.poll().step[0] == 5
    replay.seek(10)
    assert replay.poll().step[0] == 15
    replay.seek(-12)
    back = replay.poll()
    assert back.step[0] == 3 and back.position is not None and back.position[2] - back.position[1] == 29
    replay.seek(-1000)
    assert replay.poll().step[0] == 0


def test_a_recording_that_was_cut_off_plays_up_to_there(job: StoredJob, clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "watched.top.gz"
    recorder = Recorder(file, simulated_job({"dp_shard": 4}, 2))
    for second in range(200):
        recorder.take(simulated_job({"dp_shard": 4}, 2), [sample(0, 1000.0 + second, second).to_json()], [])
    recorder.close()
    file.write_bytes(file.read_bytes()[:-40])
    replay = RecordingFeed(file, clock)
    replay.seek(1000)
    assert replay.poll().step[0] > 50


@pytest.mark.parametrize("content", [b"", b"not gzip", b"\x1f\x8b\x08\x00broken"])
def test_what_is_no_recording_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.gz"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.gz"):
        RecordingFeed(file)


def test_the_samples_of_a_job_on_disk_open_at_their_end(job: StoredJob, clock: Clock) -> None:
    append(job, *(sample(node, 100.0 + second, second) for second in range(20) for node in (0, 1)))
    feed = SamplesFeed(job.paths, clock)
    assert feed.poll().step.tolist() == [19] * 4
    feed.seek(-10)
    assert feed.poll().step[0] == 9


def test_any_directory_of_logs_is_read_by_its_lines(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank{rank}.log").write_text(f"step: {10 + rank} loss: 2.5\n" * 3)
    files = log_files(tmp_path)
    assert [files[rank].name for rank in range(3)] == ["rank0.log", "rank1.log", "rank2.log"]
    snapshot = FilesFeed("logs", files).poll()
    assert snapshot.step.tolist() == [10, 11, 12]
    source = of_directory(tmp_path)
    assert next(text for _, text in source.open_logs([1]).read()) == "step: 11 loss: 2.5"


def test_files_without_numbers_are_counted(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("nothing\n")
    assert [path.name for path in log_files(tmp_path).values()] == ["a.log", "b.log"]


def test_what_cannot_be_opened_is_told(tmp_path: Path, job: StoredJob) -> None:
    with pytest.raises(InputError, match="neither a job"):
        open_source(str(tmp_path / "home" / "jobs" / "train-1" / "nodes"))
    with pytest.raises(InputError, match="no such"):
        open_source(str(tmp_path / "missing"))
    assert open_source("train-1").live and not open_source(str(job.paths.root)).live


def test_a_recording_of_thousands_stays_small(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "x.gz", simulated_job({"dp_shard": 16384}))
    info = simulated_job({"dp_shard": 16384})
    for second in range(16):
        recorder.take(info, [json.loads(encode(NodeSample(1000.0 + second, 5, "n", ranks=[RankSample(40)])))], [])
    recorder.close()
    replay = RecordingFeed(tmp_path / "x.gz")
    assert math.isclose(replay.span[1] - replay.span[0], 8.0)
