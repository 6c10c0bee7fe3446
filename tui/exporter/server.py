"""Serves a job's metric families over HTTP until somebody ends it, or the job does."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from launcher.common.text import printable
from launcher.errors import CannotActError
from launcher.jobs.record import ENDED
from tui.alarms import AlarmWatch
from tui.exporter.families import families
from tui.feed.base import Feed, FeedThread
from tui.feed.table import RankTable
from tui.snapshot import JobInfo, Snapshot

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

LAST_SCRAPE_S = 120.0  # after the job's end; longer than anybody's scrape interval
_LOOK_S = 0.5


class JobCollector(Collector):
    """One scrape is the newest snapshot of the feed; while the feed fails there is nothing to be believed."""

    def __init__(self, feed: FeedThread) -> None:
        self._feed = feed

    @property
    def snapshot(self) -> Snapshot | None:
        return None if self._feed.error else self._feed.latest

    @property
    def ended(self) -> bool:
        snapshot = self.snapshot
        return snapshot is not None and snapshot.job.state in ENDED

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The names, by which a scrape may ask for some of them (`/metrics?name[]=dlaunch_rank_step`)."""
        return families(RankTable(JobInfo("", "", "")).snapshot(0.0))

    def collect(self) -> Iterable[GaugeMetricFamily]:
        snapshot = self.snapshot
        return families(snapshot) if snapshot is not None else ()


class _Answer(list[bytes]):
    """A response that tells when it has been sent."""

    def __init__(self, parts: Iterable[bytes], sent: Callable[[], None]) -> None:
        super().__init__(parts)
        self.close = sent  # a server of WSGI calls it at the end


def serve(feed: Feed, watch: AlarmWatch, host: str, port: int) -> None:
    """Until Ctrl-C or SIGTERM; or until the job has ended and its last values were fetched, two minutes at most.

    Raises CannotActError where the address cannot be listened on.
    """
    thread, over = FeedThread(feed, watch), threading.Event()
    collector, registry = JobCollector(thread), CollectorRegistry()
    registry.register(collector)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise CannotActError(f"cannot listen on {host}:{port}: {error.strerror}", help="choose another port") from error
    server.set_app(_ending(make_wsgi_app(registry), collector, over.set))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    thread.start()
    click.echo(f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics\nCtrl-C ends it")
    try:
        wait_for_the_end(thread, collector, over)
    finally:
        server.shutdown()
        server.server_close()
        thread.close()


def _ending(app: WSGIApplication, collector: JobCollector, over: Callable[[], None]) -> WSGIApplication:
    """`app`; after an answer that was asked for when the job had ended it is over."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        last = collector.ended
        return _Answer(app(environ, start_response), over if last else lambda: None)

    return answer


def wait_for_the_end(thread: FeedThread, collector: JobCollector, over: threading.Event) -> None:
    """Returns when it is over; says what goes wrong with the feed, each thing once."""
    deadline, told = math.inf, ""
    while not over.wait(_LOOK_S) and time.monotonic() < deadline:
        if collector.ended:
            deadline = min(deadline, time.monotonic() + LAST_SCRAPE_S)
        error = str(thread.error or "")
        if error and error != told:
            click.echo(f"warning: {printable(error)}", err=True)
        told = error
