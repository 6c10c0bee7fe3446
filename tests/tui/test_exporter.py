"""Metrics for Prometheus: right values under right labels, over HTTP, until the job has ended."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from launcher.cli.top import top
from launcher.errors import CannotActError, InputError
from launcher.jobs.record import write_record
from launcher.jobs.store import StoredJob
from tests.support.dlaunch import BIN, wait_until
from tests.tui.conftest import Clock, simulated
from tests.tui.test_feeds import append, job, sample
from tui.alarms import AlarmWatch
from tui.exporter import server
from tui.exporter.server import JobCollector, serve
from tui.feed.base import FeedThread
from tui.feed.simulated import SimulatedFeed, simulated_job
from tui.snapshot import Snapshot

__all__ = ["job"]

Series = dict[tuple[str, ...], float]


def series_of(text: str, *labels: str) -> dict[str, Series]:
    """Family -> the values of these labels -> value, as Prometheus' own parser reads the text."""
    return {
        family.name: {tuple(one.labels.get(label, "") for label in labels): one.value for one in family.samples}
        for family in text_string_to_metric_families(text)
    }


@pytest.fixture
def address(job: StoredJob) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """What `dlaunch top JOB --metrics` prints, for a job of 2 × 2 ranks whose second host is a step ahead."""
    append(job, sample(0, time.time(), 7), sample(1, time.time(), 8))
    exporter = subprocess.Popen(
        [str(BIN / "dlaunch"), "top", "train-1", "--metrics", "0"], stdout=subprocess.PIPE, text=True
    )
    assert exporter.stdout is not None
    with exporter.stdout:
        yield exporter.stdout.readline().strip(), exporter
    exporter.kill()
    exporter.wait(10)


def scrape(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return str(answer.read().decode())


def test_a_running_job_is_scraped_until_it_has_ended(
    address: tuple[str, subprocess.Popen[str]], job: StoredJob
) -> None:
    url, exporter = address
    assert url.startswith("http://127.0.0.1:") and url.endswith("/metrics")
    text = wait_until(lambda: text if "dlaunch_rank_step{" in (text := scrape(url)) else "", "the first snapshot", 20)
    found = series_of(text, "job", "host", "rank", "mesh_dp_shard")
    assert found["dlaunch_rank_step"] == {
        ("train-1", "n0", "0", "0"): 7,
        ("train-1", "n0", "1", "1"): 7,
        ("train-1", "n1", "2", "2"): 8,
        ("train-1", "n1", "3", "3"): 8,
    }
    assert [*found["dlaunch_rank_step_lag"].values()] == [1, 1, 0, 0]
    assert {*found["dlaunch_rank_loss"].values()} == {2.5}
    assert found["dlaunch_rank_tokens_per_second"] == {}  # not known
    assert series_of(text, "host")["dlaunch_host_up"] == {("n0",): 1, ("n1",): 1}
    assert series_of(text, "state")["dlaunch_job_state"] == {("running",): 1}
    assert series_of(scrape(f"{url}?name[]=dlaunch_rank_loss")).keys() == {"dlaunch_rank_loss"}

    write_record(job.paths.record, job.record.with_(state="failed", ended=time.time()))
    texts = []
    while exporter.poll() is None:
        with suppress(OSError):  # it may end between two scrapes
            texts.append(scrape(url))
    assert exporter.wait() == 0 and series_of(texts[-1], "state")["dlaunch_job_state"] == {("failed",): 1}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(address: tuple[str, subprocess.Popen[str]], number: signal.Signals) -> None:
    url, exporter = address
    scrape(url)
    exporter.send_signal(number)
    assert exporter.wait(20) == 0


def test_states_alarms_and_lost_hosts_are_told(clock: Clock) -> None:
    feed = simulated(64, clock)
    feed.poll()
    feed.stopped = {9}
    clock.now += 30
    feed.poll()
    feed.table.lose({2: "no route to host"})
    snapshot = AlarmWatch(5.0)(feed.table.snapshot(clock.now))
    registry = CollectorRegistry()
    registry.register(JobCollector(told(snapshot)))
    text = generate_latest(registry).decode()
    states = dict(series_of(text, "rank", "state")["dlaunch_rank_state"].keys())
    assert (states["0"], states["9"], states["16"], len(states)) == ("running", "stopped", "unknown", 64)
    assert {kind for (kind,), value in series_of(text, "kind")["dlaunch_job_alarm"].items() if value} >= {
        "stopped", "lost",
    }  # fmt: skip
    assert series_of(text, "host")["dlaunch_host_up"][("n3",)] == 0
    use = series_of(text, "rank", "mesh_dp_shard", "mesh_tp")["dlaunch_rank_device_use_ratio"]
    assert use["9", "1", "1"] == snapshot.device_util[9] / 100


def told(snapshot: Snapshot | None, error: Exception | None = None) -> FeedThread:
    """A thread of a feed that has told this, without running."""
    thread = FeedThread(SimulatedFeed(simulated_job({"tp": 8})))
    thread.latest, thread.error = snapshot, error
    return thread


def test_while_the_feed_fails_nothing_is_served(clock: Clock) -> None:
    snapshot = simulated(64, clock).poll()
    assert [*JobCollector(told(snapshot)).collect()]
    assert [*JobCollector(told(snapshot, OSError("stale file handle"))).collect()] == []
    assert [*JobCollector(told(None)).collect()] == []


def test_it_ends_also_when_nobody_fetches_the_last_values(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = simulated(64, clock).poll()
    thread, over = told(replace(snapshot, job=replace(snapshot.job, state="stopped"))), threading.Event()
    monkeypatch.setattr(server, "LAST_SCRAPE_S", 0.1)
    server.wait_for_the_end(thread, JobCollector(thread), over)
    assert not over.is_set()


def test_a_port_that_is_taken_is_refused(clock: Clock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotActError, match=f"cannot listen on 127.0.0.1:{port}"):
            serve(simulated(64, clock), AlarmWatch(5.0), "127.0.0.1", port)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train-1", "--metrics", "here"], "--metrics: 'here' is not"),
        (["--metrics", "9400"], "--metrics: of which job"),
        (["train-1", "--metrics", "9400", "--record", "x"], "--record: --metrics and --record exclude each other"),
        (["nothing-such", "--metrics", "9400"], "no job"),
    ],
)
def test_refusals(arguments: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        top.main(arguments, standalone_mode=False)


def test_without_the_library_the_line_that_installs_it_is_shown(
    job: StoredJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tui.exporter.server")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(CannotActError) as refused:
        top.main(["train-1", "--metrics", "9400"], standalone_mode=False)
    assert str(refused.value) == "prometheus_client is not installed (pip install 'dlaunch[metrics]')"
