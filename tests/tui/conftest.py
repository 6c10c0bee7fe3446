"""A simulated job at any size, a clock that tests turn, and waiting for what the screen shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tui.app import TopApp, TopOptions
from tui.feed.logs import LogSource
from tui.feed.simulated import SimulatedFeed, simulated_job
from tui.feed.source import Source
from tui.view import Line

DEADLINE_S = 20.0


class Clock:
    """Seconds since the epoch that stand still until a test moves them."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No test sees the jobs of who runs it."""
    monkeypatch.setenv("DLAUNCH_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def simulated(ranks: int, clock: Clock, slow: dict[int, float] | None = None) -> SimulatedFeed:
    feed = SimulatedFeed(simulated_job({"dp_replicate": ranks // 64, "dp_shard": 8, "tp": 8}), clock, slow)
    feed.period_s = 0.05
    clock.now += 100
    return feed


def app_of(feed: SimulatedFeed, **options: object) -> TopApp:
    return TopApp(lambda: Source(feed, lambda ranks: LogSource({}), "sim"), TopOptions(**options))  # type: ignore[arg-type]


async def until(pilot: Pilot[None], true: Callable[[], object]) -> None:
    """Let the app go on until something is so."""
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, screen_text(pilot)
        await asyncio.sleep(0.02)
    await pilot.pause()


def screen_text(pilot: Pilot[None]) -> str:
    """The screen as text."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def line(pilot: Pilot[None], id: str) -> str:
    return pilot.app.screen.query_one(f"#{id}", Line).text
