"""Draw the pictures of docs/pictures anew from a real job of 8 ranks, one of which is stopped: `make pictures`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from textual.pilot import Pilot

from tui.app import TopApp
from tui.feed.source import open_source
from tui.view import Line

HERE = Path(__file__).parent
SIZE = (118, 30)
STOPPED_RANK = 5
STEPS = 40  # before the picture is taken
PATIENCE_S = 150.0
EARLIER = {"evaluate.py": "print('done')", "convert.py": "raise FileNotFoundError('/data/shard-0007.bin')"}
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # they name a foreign host


def dlaunch(folder: Path, *arguments: str) -> str:
    argv = [str(Path(sys.executable).with_name("dlaunch")), *arguments]
    return subprocess.run(argv, cwd=folder, stdout=subprocess.PIPE, text=True, check=False).stdout


@contextmanager
def running_job(folder: Path) -> Iterator[str]:
    """A job that trains, beside two that have ended."""
    for name, text in EARLIER.items():
        (folder / name).write_text(text)
        dlaunch(folder, "run", name, "--nodes", "1", "--nproc-per-node", "1", "--no-torchrun")
    shutil.copytree(HERE.parents[1] / "workloads", folder / "workloads")  # a path that says nothing of who draws
    script = ("workloads/hsdp.py", "--nodes", "4", "--mesh", "dp_replicate=4,dp_shard=2", "--", "--steps", "100000")
    started = dlaunch(folder, "run", "--detach", "--json", *script)
    job = json.loads(started)["job"]
    try:
        yield job
    finally:
        dlaunch(folder, "stop", job, "--grace", "1")


async def until(pilot: Pilot[None], true: Callable[[], object]) -> None:
    async def wait() -> None:
        while not true():
            await pilot.pause(0.1)

    await asyncio.wait_for(wait(), PATIENCE_S)
    await pilot.pause(0.5)


def says(pilot: Pilot[None], line: str, words: str) -> bool:
    found = pilot.app.screen.query(f"#{line}")
    return bool(found) and isinstance(shown := found.first(), Line) and words in shown.text


def save(app: TopApp, name: str) -> None:
    drawn = _FONT_FACE.sub("", app.export_screenshot(title="dlaunch top"))
    (HERE / f"{name}.svg").write_text(drawn.replace("Fira Code, monospace", "Menlo, Consolas, monospace"))


async def draw(job: str) -> None:
    app = TopApp(partial(open_source, job))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.snapshot is not None and app.snapshot.step.min() >= STEPS)
        assert app.snapshot is not None
        os.kill(int(app.snapshot.pid[STOPPED_RANK]), signal.SIGSTOP)
        await until(pilot, lambda: says(pilot, "event", "stopped"))
        save(app, "job")
        for key, name in (("d", "doctor"), ("s", "stacks")):
            await pilot.press(key)
            await until(pilot, lambda: says(pilot, "legend", " s") and not says(pilot, "legend", "looking"))
            save(app, name)
            await pilot.press("b")
        await pilot.press("b")
        await until(pilot, lambda: says(pilot, "head", "3 jobs"))
        save(app, "jobs")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="train-") as folder:
        os.environ["DLAUNCH_HOME"] = str(Path(folder, "home"))
        with running_job(Path(folder)) as job:
            asyncio.run(draw(job))


if __name__ == "__main__":
    main()
