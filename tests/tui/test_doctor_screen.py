"""Findings as the doctor's screen shows them."""

from __future__ import annotations

from pathlib import Path

from launcher.common.finding import Evidence, Finding
from tests.tui.conftest import Clock, screen_text, simulated, until
from tui.app import TopApp
from tui.feed.logs import LogSource
from tui.feed.source import Source
from tui.screens.doctor import DoctorScreen, finding_row, finding_text, waits

ABSENT = Finding(
    "hang.absent_rank",
    "error",
    "Rank 6 has not entered number 118\x1b[2J of the group.",
    "Look at its data loader.",
    0.9,
    ranks=(6,),
    detail={"op": "all_reduce", "seq": 118, "group": "dp_shard", "waiting": "0-5,7", "decisions": ["all stuck? no"]},
    evidence=(Evidence("flight_recorder", "fr_6 #118", "waiting in all_reduce"),),
    missing=("no dump from rank 3",),
).to_json()


def test_a_finding_is_one_row_and_a_text_with_all_that_it_says() -> None:
    assert finding_row(0, ABSENT).cells[:4] == ["error", "hang.absent_rank", "6", "90%"]
    text = finding_text(ABSENT).plain
    for words in ("\\x1b[2J", "do Look at its", "fr_6 #118", "missing: no dump from rank 3", "all stuck? no"):
        assert words in text
    assert "\x1b" not in text


def test_who_waits_for_whom() -> None:
    assert waits(ABSENT)[0] == "ranks 0-5,7 ──▶ all_reduce #118 of dp_shard ──▶ rank 6"
    stalled = {"detail": {"op": "all_gather", "seq": 3, "group": "tp", "members": "0-3"}, "ranks": []}
    assert waits(stalled) == ["ranks 0-3 ──▶ all_gather #3 of tp ──▶ nobody is missing"]
    assert waits({"detail": {"cycle": [1, 4]}}) == ["1 ──▶ 4 ──▶ 1"]
    assert waits({}) == []


async def test_it_asks_the_real_doctor_and_shows_its_words(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "rank3.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    app = TopApp(lambda: Source(simulated(64, clock), lambda ranks: LogSource({}), str(tmp_path)))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.snapshot is not None)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, DoctorScreen))
        await pilot.press("A")
        await until(pilot, lambda: "diagnose: gpu.oom" in screen_text(pilot))
        assert "CUDA out of memory" in screen_text(pilot)
