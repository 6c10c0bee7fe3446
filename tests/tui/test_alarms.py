"""Alarms: who stands out, since when, and the one command that is run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tui.conftest import Clock, simulated
from tui.alarms import LEAST_PATIENCE_S, AlarmWatch, find_alarms, run_command
from tui.feed.simulated import SimulatedFeed
from tui.snapshot import STATE_CODES, Snapshot


def kinds(snapshot: Snapshot) -> dict[str, list[int]]:
    return {kind: ranks for kind, ranks, _ in find_alarms(snapshot, 5.0)}


@pytest.fixture
def feed(clock: Clock) -> SimulatedFeed:
    return simulated(64, clock)


def test_a_healthy_job_has_none(feed: SimulatedFeed) -> None:
    assert kinds(feed.poll()) == {}


def test_a_stopped_rank_at_once_and_behind_later(feed: SimulatedFeed, clock: Clock) -> None:
    feed.stopped = {7}
    assert kinds(feed.poll()) == {"stopped": [7]}
    clock.now += LEAST_PATIENCE_S + 5
    assert kinds(feed.poll()) == {"stopped": [7], "behind": [7]}


def test_a_job_without_progress_names_those_that_are_behind(feed: SimulatedFeed, clock: Clock) -> None:
    before = feed.poll()
    step = before.step.copy()
    step[3] -= 1
    still = replace(before, time=before.time + 30, measures={**before.measures, "step": step})
    assert kinds(still) == {"no_progress": [3]}
    (text,) = [text for _, _, text in find_alarms(still, 5.0)]
    assert ("rank 3" in text and "30 s" in text) or "31 s" in text


def test_a_job_without_progress_tells_in_which_collectives_its_ranks_stand(feed: SimulatedFeed) -> None:
    before = feed.poll()
    inside = dict.fromkeys(range(64), "all_reduce #26 of default_pg") | {5: "no collective"}
    still = replace(before, time=before.time + 30, collectives=inside)
    (text,) = [text for _, _, text in find_alarms(still, 5.0)]
    assert text.endswith("; rank 5 in no collective; ranks 0-4,6-63 (63 of them) in all_reduce #26 of default_pg")
    everywhere = replace(still, collectives={rank: f"send 0->1 #{rank} of pp" for rank in range(10)})
    assert next(find_alarms(everywhere, 5.0))[2].endswith("; rank 2 in send 0->1 #2 of pp; 7 other places")


def test_patience_grows_with_the_step(feed: SimulatedFeed) -> None:
    before = feed.poll()
    slow = {**before.measures, "step_s": np.full(64, 20.0)}
    assert kinds(replace(before, time=before.time + 60, measures=slow)) == {}
    assert kinds(replace(before, time=before.time + 120, measures=slow)) == {"no_progress": []}


def test_a_rank_that_ended_and_a_host_that_does_not_answer(feed: SimulatedFeed) -> None:
    snapshot = feed.poll()
    state = snapshot.state.copy()
    state[5] = STATE_CODES["gone"]
    lost = replace(snapshot, state=state, nodes=replace(snapshot.nodes, lost={1: "no sample for 8 s"}))
    assert kinds(lost) == {"gone": [5], "lost": list(range(8, 16))}


def test_an_ended_job_is_left_in_peace(feed: SimulatedFeed) -> None:
    snapshot = feed.poll()
    ended = replace(snapshot, time=snapshot.time + 900, job=replace(snapshot.job, state="succeeded"))
    assert kinds(ended) == {}


def test_the_command_runs_once_an_episode(feed: SimulatedFeed, clock: Clock) -> None:
    runs: list[Mapping[str, str]] = []
    watch = AlarmWatch(5.0, "true", run=lambda command, environment: runs.append(environment))
    feed.stopped = {7}
    first = watch(feed.poll())
    clock.now += 3
    second = watch(feed.poll())
    assert len(runs) == 1 and runs[0]["DLAUNCH_ALARM_RANKS"] == "7" and runs[0]["DLAUNCH_ALARM"] == "stopped"
    assert first.alarms[0].since == second.alarms[0].since
    feed.stopped = set()
    clock.now += 0.1
    assert watch(replace(feed.poll(), state=first.state * 0 + 2)).alarms == ()
    feed.stopped = {7}
    watch(feed.poll())
    assert len(runs) == 2


def test_the_command_is_a_shell_line_with_the_alarm_in_its_environment(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_command(
        f'{sys.executable} -c "" && echo "$DLAUNCH_JOB" > {out}.new && mv {out}.new {out}', {"DLAUNCH_JOB": "j"}
    )
    deadline = time.monotonic() + 20
    while not out.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert out.read_text() == "j\n"
    assert "DLAUNCH_JOB" not in os.environ
