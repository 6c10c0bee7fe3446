"""What every feed can do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from tui.snapshot import Snapshot


class Feed(Protocol):
    """A source of snapshots of one job."""

    period_s: float  # how often it is worth asking

    def poll(self) -> Snapshot:
        """Take in what is new and return the picture; quick, and raises only for what a person must fix."""

    def seek(self, seconds: float) -> None:
        """Move a recording by `seconds`; a live feed stays where it is."""

    def close(self) -> None:
        """Give back files, connections and threads."""


class FeedThread:
    """Polls a feed in a thread; whoever draws reads `latest`. An error of the feed is kept in `error`."""

    def __init__(self, feed: Feed, watch: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot) -> None:
        self.feed = feed
        self.latest: Snapshot | None = None
        self.error: Exception | None = None
        self.cpu = 0.0  # share of one core that the feed takes here
        self._watch = watch
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def seek(self, seconds: float) -> None:
        """Move a recording and show where it now is."""
        self.feed.seek(seconds)
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2)
        self.feed.close()

    def _run(self) -> None:
        while not self._closed:
            began, cpu = time.monotonic(), time.thread_time()
            try:
                self.latest = self._watch(self.feed.poll())
                self.error = None
            except Exception as error:  # the thread must outlive what a host or a file does to it
                self.error = error
            self._wake.clear()
            self._wake.wait(max(0.05, self.feed.period_s - (time.monotonic() - began)))
            self.cpu = (time.thread_time() - cpu) / max(time.monotonic() - began, 1e-3)
