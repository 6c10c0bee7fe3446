"""The screens as pictures. `UPDATE_PICTURES=1 pytest tests/tui/test_pictures.py` draws them anew, to be looked at."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tui.conftest import Clock, line, simulated, until
from tui.app import TopApp, TopOptions
from tui.feed.logs import LogSource
from tui.feed.source import Source
from tui.snapshot import Snapshot

PICTURES = Path(__file__).parent / "pictures"


@dataclass
class StillFeed:
    """One snapshot, for ever."""

    snapshot: Snapshot
    period_s = 600.0

    def poll(self) -> Snapshot:
        return self.snapshot

    def seek(self, seconds: float) -> None:
        """It has one moment."""

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def comparable(svg: str) -> str:
    """Without the identifier that Rich makes from the content."""
    return re.sub(r"terminal-\d+", "terminal", svg)


@pytest.mark.parametrize(
    ("name", "ranks", "size", "keys", "colourless"),
    [
        ("job-64", 64, (80, 24), [], False),
        ("job-16384-lag", 16384, (120, 40), ["m"], False),
        ("job-1024-axes", 1024, (100, 30), ["m", "m", "v"], False),
        ("job-64-letters", 64, (80, 24), [], True),
        ("rank", 64, (80, 24), ["n", "enter"], False),
    ],
)
async def test_a_screen_looks_as_it_did(
    name: str, ranks: int, size: tuple[int, int], keys: list[str], colourless: bool, clock: Clock
) -> None:
    feed = simulated(ranks, clock, slow={21: 1.3})
    feed.stopped = {42}
    still = StillFeed(feed.poll())
    app = TopApp(lambda: Source(still, lambda _: LogSource({}), "sim"), TopOptions(colourless=colourless))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: pilot.app.screen.query("#event") and "stopped" in line(pilot, "event"))
        await pilot.press(*keys)
        await pilot.pause()
        drawn = comparable(app.export_screenshot(title=name))
    file = PICTURES / f"{name}.svg"
    if os.environ.get("UPDATE_PICTURES"):
        file.write_text(drawn)
    assert drawn == file.read_text(), f"{name} looks different: look at UPDATE_PICTURES=1, then at git diff"
