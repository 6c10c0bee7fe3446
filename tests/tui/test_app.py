"""Every screen and key, on simulated jobs of 1,024 and 16,384 ranks."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from launcher.jobs.record import write_record
from launcher.jobs.store import StoredJob
from launcher.slurm.status import SEPARATOR
from tests.tui.conftest import Clock, app_of, line, screen_text, simulated, until
from tests.tui.test_feeds import append, job, sample
from tui.app import TopApp
from tui.feed.source import open_source
from tui.metrics import METRICS
from tui.screens.dialogs import Confirm, Reader
from tui.screens.doctor import DoctorScreen
from tui.screens.job import JobScreen
from tui.screens.jobs import JobsScreen
from tui.screens.logs import LogPane, LogsScreen
from tui.screens.rank import RankScreen
from tui.screens.stacks import StacksScreen
from tui.screens.topology import TopologyScreen
from tui.widgets.heatmap import HeatMap
from tui.widgets.log import LogView
from tui.widgets.table import LineTable

__all__ = ["job"]
SIZES = [(80, 24), (120, 40), (300, 100)]


async def opened(pilot: Any) -> JobScreen:
    """The job's screen with a picture on it."""
    await until(pilot, lambda: isinstance(pilot.app.screen, JobScreen) and "ranks on" in line(pilot, "head"))
    screen = pilot.app.screen
    assert isinstance(screen, JobScreen)
    return screen


@pytest.mark.parametrize("ranks", [1024, 16384])
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_job_fits_every_terminal(ranks: int, size: tuple[int, int], clock: Clock) -> None:
    async with app_of(simulated(ranks, clock)).run_test(size=size) as pilot:
        screen = await opened(pilot)
        heat = screen.query_one(HeatMap)
        assert f"{ranks} ranks" in line(pilot, "head")
        assert heat.grid is not None and sorted(set(heat.grid.cell_of)) == list(range(max(heat.grid.cell_of) + 1))
        assert heat.grid.rows <= 2 * heat.size.height and heat.size.height >= 3
        assert all(len(text) <= size[0] + 1 for text in screen_text(pilot).splitlines())


async def test_metrics_sides_and_palettes_cycle(clock: Clock) -> None:
    async with app_of(simulated(1024, clock)).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        labels = []
        for _ in METRICS:
            labels.append(line(pilot, "legend").split("·")[0].strip())
            await pilot.press("m")
        assert labels == [metric.label for metric in METRICS]
        await pilot.press("M")
        assert METRICS[-1].label in line(pilot, "legend")
        titles = set()
        for _ in range(7):
            titles.add(screen.query_one(HeatMap).title)
            await pilot.press("v")
        assert len(titles) == 7 and any("tp ↓ × dp_shard →, worst over dp_replicate" in title for title in titles)
        await pilot.press("p")
        assert screen.query_one(HeatMap).palette == "viridis"


@pytest.mark.parametrize(
    ("keys", "cell"), [("right down", (1, 1)), ("l j", (1, 1)), ("l l h", (0, 1)), ("j k up", (0, 0))]
)
async def test_arrows_and_hjkl_move_the_cursor(keys: str, cell: tuple[int, int], clock: Clock) -> None:
    async with app_of(simulated(1024, clock)).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        await pilot.press(*keys.split())
        heat = screen.query_one(HeatMap)
        assert heat.cursor == cell
        assert f"rank {heat.ranks()[0]} " in line(pilot, "cell")


async def test_the_mouse_picks_a_rank_and_opens_it(clock: Clock) -> None:
    async with app_of(simulated(64, clock)).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.click(HeatMap, offset=(40, 2))
        heat = pilot.app.screen.query_one(HeatMap)
        (rank,) = heat.ranks()
        assert rank != 0
        await pilot.click(HeatMap, offset=(40, 2))
        await until(pilot, lambda: isinstance(pilot.app.screen, RankScreen))
        assert pilot.app.screen.rank == rank  # type: ignore[attr-defined]


@pytest.mark.parametrize("ranks", [1024, 16384])
async def test_the_worst_rank_stands_first_and_n_goes_to_it(ranks: int, clock: Clock) -> None:
    feed = simulated(ranks, clock, slow={777: 1.5})
    feed.stopped = {345}
    async with app_of(feed).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        await pilot.press("m")
        keys = [row.key for row in screen.query_one(LineTable).rows]
        assert keys[:2] == ["345", "777"] and len(keys) <= 200
        assert "rank 345 stopped" in line(pilot, "event")
        await pilot.press("n")
        assert 345 in screen.selected


async def test_space_stops_the_view_and_not_the_feed(clock: Clock) -> None:
    async with app_of(simulated(64, clock)).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        await pilot.press("space")
        shown = screen.query_one(LineTable).rows
        clock.now += 50
        feed = pilot.app.feed  # type: ignore[attr-defined]
        await until(pilot, lambda: feed.latest.time == clock.now)
        assert screen.query_one(LineTable).rows == shown and pilot.app.snapshot.time < clock.now  # type: ignore[attr-defined]
        await pilot.press("space")
        await until(pilot, lambda: pilot.app.snapshot.time == clock.now)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "rows"),
    [("12", {"12"}), ("n3", {str(rank) for rank in range(16, 24)}), ("tp7", {str(r) for r in range(7, 64, 8)})],
)
async def test_slash_filters_by_rank_host_and_coordinate(text: str, rows: set[str], clock: Clock) -> None:
    async with app_of(simulated(64, clock)).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        await pilot.press("slash")
        await until(pilot, lambda: pilot.app.screen.query(Input))
        await pilot.press(*text, "enter")
        await until(pilot, lambda: pilot.app.screen is screen)
        assert {row.key for row in screen.query_one(LineTable).rows} == rows


async def test_question_mark_lists_the_keys_and_c_the_command(clock: Clock) -> None:
    async with app_of(simulated(64, clock)).run_test(size=(120, 50)) as pilot:
        await opened(pilot)
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(pilot.app.screen, Reader))
        assert "diagnose" in screen_text(pilot) and "pause the view" in screen_text(pilot)
        await pilot.press("escape", "c")
        await until(pilot, lambda: "dlaunch top" in screen_text(pilot))
        assert pilot.app.clipboard == "dlaunch top sim-261129-120000-0000 --once"


async def test_colon_opens_everything(clock: Clock) -> None:
    async with app_of(simulated(64, clock)).run_test(size=(120, 50)) as pilot:
        await opened(pilot)
        await pilot.press("colon")
        await pilot.press(*"next metric")
        await until(pilot, lambda: "next metric" in screen_text(pilot))
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, JobScreen) and "step lag" in line(pilot, "legend"))


@pytest.mark.parametrize(
    ("key", "screen"),
    [("L", LogsScreen), ("t", TopologyScreen), ("enter", RankScreen), ("d", DoctorScreen), ("s", StacksScreen)],
)
async def test_each_screen_opens_and_goes_back(key: str, screen: type, clock: Clock) -> None:
    async with app_of(simulated(64, clock)).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press(key)
        await until(pilot, lambda: isinstance(pilot.app.screen, screen))
        assert "ranks on" in line(pilot, "head")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, JobScreen))


async def test_a_rank_shows_its_facts_and_its_neighbours(clock: Clock) -> None:
    async with app_of(simulated(64, clock)).run_test(size=(120, 30)) as pilot:
        await opened(pilot)
        await pilot.press("right", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, RankScreen) and "pid 1001" in screen_text(pilot))
        assert re.search(r"use \d+ %", screen_text(pilot)) and "host n1" in screen_text(pilot)
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: "pid 1002" in screen_text(pilot))
        await pilot.press("left_square_bracket", "left_square_bracket", "left_square_bracket")
        await until(pilot, lambda: "pid 1063" in screen_text(pilot))


async def test_stop_asks_and_readonly_refuses(clock: Clock, job: StoredJob) -> None:
    async with TopApp().run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "train-1" in screen_text(pilot))
        await pilot.press("x")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm) and "train-1" in screen_text(pilot))
        await pilot.press("n")
        await until(pilot, lambda: isinstance(pilot.app.screen, JobsScreen))
    async with app_of(simulated(64, clock), readonly=True).run_test(size=(120, 30)) as pilot:
        screen = await opened(pilot)
        await pilot.press("x")
        assert pilot.app.screen is screen and "read-only" in line(pilot, "head")


async def test_the_jobs_are_listed_filtered_and_opened(job: StoredJob) -> None:
    other = job.record.with_(job="other-2", name="other", state="failed", ended=5.0, reason="rank 1 failed")
    write_record(job.paths.root.parent / "other-2" / "job.json", other)
    async with TopApp().run_test(size=(140, 30)) as pilot:
        table = pilot.app.screen.query_one(LineTable)
        await until(pilot, lambda: [row.key for row in table.rows] == ["train-1", "other-2"])
        assert "n[0-1]" in screen_text(pilot) and "rank 1 failed" in screen_text(pilot)
        await pilot.press("slash")
        await until(pilot, lambda: pilot.app.screen.query(Input))
        await pilot.press(*"failed", "enter")
        await until(pilot, lambda: [row.key for row in table.rows] == ["other-2"])
        await pilot.press("enter")
        await opened(pilot)
        assert "other" in line(pilot, "head") and "failed" in line(pilot, "head")


async def test_jobs_in_slurms_queue_that_are_not_ours_are_listed(
    job: StoredJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = SEPARATOR.join(
        ("71", "RUNNING", "None", "me", "gpu", "g[1-2]", "2", "2026-11-29T10:00:00", "1:00:00", "N/A", "/w", "theirs")
    )  # fmt: skip
    squeue = tmp_path / "bin" / "squeue"
    squeue.parent.mkdir()
    squeue.write_text(f"#!/bin/sh\necho '{row}'\n")
    squeue.chmod(0o755)
    (tmp_path / "inventory.yaml").write_text("clusters: {hpc: {kind: slurm, partition: gpu}}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{squeue.parent}:{os.environ['PATH']}")
    async with TopApp().run_test(size=(140, 30)) as pilot:
        table = pilot.app.screen.query_one(LineTable)
        await until(pilot, lambda: [entry.key for entry in table.rows] == ["slurm:71", "train-1"])
        assert "slurm:71 theirs" in screen_text(pilot) and "1 that dlaunch did not start" in line(pilot, "head")
        await pilot.press("home", "enter", "x")
        assert isinstance(pilot.app.screen, JobsScreen)


HOSTILE = (
    "\x1b[2J\x1b[H\x1b]0;title\x07\x1b[?1049l\x9b31mred \x08\x08\x7f\x00 \u202egnp.exe \u2066x\u2069 a\tb\rover"
    "\x1bP1;2|q\x1b\\\x1b]52;c;aGk=\x07 [bold]no markup[/bold] " + "W" * 500
)


async def test_hostile_lines_cannot_move_the_cursor(job: StoredJob) -> None:
    for rank in range(4):
        stdout = job.paths.stdout(rank, 0)
        stdout.parent.mkdir(parents=True)
        stdout.write_bytes((HOSTILE + "\n").encode() + b"\xff\xfe broken \xc3\n")
    async with TopApp().run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "train-1" in screen_text(pilot))
        await pilot.press("enter")
        await opened(pilot)
        await pilot.press("L")
        await until(pilot, lambda: "broken" in screen_text(pilot))
        strips = pilot.app.screen._compositor.render_strips()
        text = "".join(segment.text for strip in strips for segment in strip)
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
        assert "[bold]no markup[/bold]" in "".join(pilot.app.screen.query_one(LogPane).lines_shown)
        assert all(strip.cell_length == 120 for strip in strips)


async def test_logs_fold_filter_follow_copy_and_save(job: StoredJob, tmp_path: Path) -> None:
    for rank in range(4):
        stdout = job.paths.stdout(rank, 0)
        stdout.parent.mkdir(parents=True)
        stdout.write_text("".join(f"line {n} of all\n" for n in range(100)) + f"only {rank}\n")
    async with TopApp().run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "train-1" in screen_text(pilot))
        await pilot.press("enter")
        await opened(pilot)
        await pilot.press("L")
        await until(pilot, lambda: "only 3" in screen_text(pilot))
        view = pilot.app.screen.query_one(LogView)
        assert view.lines_shown[0] == "0-3 │ line 0 of all" and len(view.lines_shown) == 104 and view.follows
        await pilot.press("k")
        assert not view.follows
        await pilot.press("f")
        assert view.follows
        with job.paths.stdout(2, 0).open("a") as file:
            file.write("newest\n")
        await until(pilot, lambda: "newest" in screen_text(pilot))
        await pilot.press("slash")
        await until(pilot, lambda: pilot.app.screen.query(Input))
        await pilot.press(*"only [12]", "enter")
        await until(pilot, lambda: len(view.lines_shown) == 2)
        await pilot.press("y")
        assert pilot.app.clipboard == "  1 │ only 1\n  2 │ only 2"
        await pilot.press("w")
        await until(pilot, lambda: pilot.app.screen.query(Input))
        pilot.app.screen.query_one(Input).value = str(tmp_path / "saved.txt")
        await pilot.press("enter")
        await until(pilot, lambda: (tmp_path / "saved.txt").exists())
        assert "only 2" in (tmp_path / "saved.txt").read_text()


async def test_a_recording_is_made_and_sought_by_keys(
    job: StoredJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    monkeypatch.chdir(tmp_path)
    async with TopApp(lambda: open_source("train-1")).run_test(size=(120, 30)) as pilot:
        await opened(pilot)
        await pilot.press("r")
        await until(pilot, lambda: list(tmp_path.glob("*.top.gz")))
        for step in range(40):
            append(job, sample(0, time.time() + step, step))
            await until(pilot, lambda step=step: pilot.app.feed.latest.step[0] == step)  # type: ignore[misc]
            if step == 2:
                break
        await pilot.press("r")
    (file,) = tmp_path.glob("*.top.gz")
    async with TopApp(lambda: open_source(str(file))).run_test(size=(120, 30)) as pilot:
        await opened(pilot)
        assert "replay" in line(pilot, "head")
        await pilot.press("full_stop")
        await until(pilot, lambda: pilot.app.snapshot.step[0] == 2)  # type: ignore[attr-defined]
        await pilot.press("comma")
        await until(pilot, lambda: pilot.app.snapshot.step[0] == 0)  # type: ignore[attr-defined]


async def test_without_colour_cells_are_letters(clock: Clock) -> None:
    feed = simulated(1024, clock)
    feed.stopped = {100}
    async with app_of(feed, colourless=True).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        heat = screen.query_one(HeatMap)
        body = "".join(segment.text for y in range(heat.size.height) for segment in heat.render_line(y))
        assert body.count("T") == 1 and body.count("r") > 900 and "▀" not in body


async def test_the_terminal_may_change_its_size(clock: Clock) -> None:
    async with app_of(simulated(16384, clock)).run_test(size=(200, 50)) as pilot:
        screen = await opened(pilot)
        for size in ((80, 24), (40, 10), (300, 100), (20, 5), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        heat = screen.query_one(HeatMap)
        await until(pilot, lambda: heat.grid is not None and heat.grid.columns <= 110)


async def test_a_job_that_has_no_ranks_yet_and_then_another_size(job: StoredJob) -> None:
    full = job.record
    write_record(job.paths.record, full.with_(state="pending", nodes=(), ranks=(), mesh={}))
    async with TopApp(lambda: open_source("train-1")).run_test(size=(100, 30)) as pilot:
        screen = await opened(pilot)
        for key in ("m", "v", "right", "n", "enter", "L", "b"):
            await pilot.press(key)
        assert "0 ranks" in line(pilot, "head") and not screen.selected
        write_record(job.paths.record, full)
        await until(pilot, lambda: "4 ranks on 2 hosts" in line(pilot, "head"))
        fewer = full.with_(nodes=full.nodes[:1], ranks=full.ranks[:2], mesh={"dp_shard": 2}, attempt=1)
        write_record(job.paths.record, fewer)
        await until(pilot, lambda: "2 ranks on 1 hosts" in line(pilot, "head") and "attempt 2" in line(pilot, "head"))


async def test_an_error_of_the_feed_is_told_and_the_view_goes_on(job: StoredJob) -> None:
    async with TopApp(lambda: open_source("train-1")).run_test(size=(100, 30), notifications=True) as pilot:
        await opened(pilot)
        job.paths.record.write_text("{ [bold]broken")
        await until(pilot, lambda: "not a job's record" in screen_text(pilot))
        write_record(job.paths.record, job.record.with_(state="failed", reason="rank 1"))
        await until(pilot, lambda: "failed" in line(pilot, "head"))
