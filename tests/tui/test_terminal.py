"""`dlaunch top` in a real terminal (tmux), over real jobs on this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.dlaunch import BIN, Dlaunch, wait_until

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

STEPS = """
import os, time
for step in range(100000):
    print(f"step: {step} loss: {9 / (step + 1):.4f}", flush=True)
    time.sleep(0.2)
"""
REDUCE = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(100000):
    dist.all_reduce(torch.ones(8))
    print(f"step: {step} loss: {9 / (step + 1):.4f}", flush=True)
    time.sleep(0.05)
"""


class Terminal:
    """A tmux server of our own with a shell in it."""

    def __init__(self, socket: Path, env: dict[str, str], columns: int = 110, lines: int = 34) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        size = ["-x", str(columns), "-y", str(lines)]
        shell = ["env", "PS1=ready$ ", "bash", "--norc", "--noprofile"]
        subprocess.run([*self._tmux, "new-session", "-d", *size, *shell], env={**os.environ, **env}, check=True)
        wait_until(lambda: "ready$" in self.text(), "the shell")

    def text(self) -> str:
        return self._run("capture-pane", "-p")

    def type(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def start(self, *arguments: str) -> psutil.Process:
        """Start `dlaunch top …`; its process when it has painted."""
        self.type(shlex.join([str(BIN / "dlaunch"), "top", *arguments]), "Enter")
        wait_until(lambda: "? " in self.text() and " help" in self.text(), "the first picture")
        pane = psutil.Process(int(self._run("list-panes", "-F", "#{pane_pid}")))
        return pane.children()[0]

    def shows(self, words: str, deadline: float = 60.0) -> float:
        """Seconds until the words are on the screen."""
        began = time.monotonic()
        wait_until(lambda: words in self.text(), f"{words!r} on\n{self.text()}", deadline)
        return time.monotonic() - began

    def resize(self, columns: int, lines: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(lines))

    def is_restored(self) -> bool:
        """Whether the shell is back: no alternate screen, echo and line editing on, the cursor to be seen."""
        flags = self._run("display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}").split()
        return flags == ["0", "1", "0"]

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False)

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def dlaunch(tmp_path: Path) -> Iterator[Dlaunch]:
    (tmp_path / "work").mkdir()
    dlaunch = Dlaunch(tmp_path / "jobs-home", tmp_path / "work")
    yield dlaunch
    for row in dlaunch.json("ps")["jobs"]:
        if row["state"] not in ("succeeded", "failed", "stopped"):
            dlaunch.run("stop", row["job"], "--grace", "1")


@pytest.fixture
def open_terminal(tmp_path: Path, dlaunch: Dlaunch) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(**size: int) -> Terminal:
        terminal = Terminal(tmp_path / f"tmux{len(opened)}", {"DLAUNCH_HOME": str(dlaunch.home)}, **size)
        opened.append(terminal)
        return terminal

    yield open_one
    for terminal in opened:
        terminal.close()


def start_job(dlaunch: Dlaunch, text: str) -> str:
    """A detached job of two hosts with two ranks each."""
    return dlaunch.detach(dlaunch.script(text, "train.py"), "--nodes", "2", "--nproc-per-node", "2")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def in_time(seconds: float, promised: float) -> bool:
    """Whether a promise was kept; a machine with more to do than cores is not held to it."""
    return seconds < promised or os.getloadavg()[0] > (os.cpu_count() or 1)


def test_a_job_is_opened_resized_and_left(dlaunch: Dlaunch, open_terminal: Callable[..., Terminal]) -> None:
    job = start_job(dlaunch, STEPS)
    terminal = open_terminal(columns=80, lines=24)
    terminal.start()
    terminal.shows(job[:30])
    terminal.type("Enter")
    terminal.shows("4 ranks on 2 hosts")
    terminal.shows("step 1")
    for columns, lines in ((200, 60), (40, 12), (100, 30)):
        terminal.resize(columns, lines)
        terminal.shows("train")
    terminal.type("L")
    terminal.shows("0-3 │ step:")
    terminal.type("q")
    terminal.shows("ready$")
    assert terminal.is_restored()


def test_a_job_that_does_not_exist_is_told_in_the_shell(
    dlaunch: Dlaunch, open_terminal: Callable[..., Terminal]
) -> None:
    terminal = open_terminal()
    terminal.type(f"{BIN / 'dlaunch'} top nothing-such; echo status $?", "Enter")
    terminal.shows("status 2")
    assert "no job" in terminal.text() and terminal.is_restored()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_restored_when_it_is_ended(
    how: signal.Signals, dlaunch: Dlaunch, open_terminal: Callable[..., Terminal]
) -> None:
    terminal = open_terminal()
    process = terminal.start()
    process.send_signal(how)
    wait_until(terminal.is_restored, "the terminal as it was")
    terminal.type("echo still $((40 + 2))", "Enter")
    terminal.shows("still 42")


def test_it_ends_with_its_terminal(dlaunch: Dlaunch, open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal()
    process = terminal.start()
    terminal.close()
    process.wait(30)


def test_a_stopped_rank_shows_within_three_seconds(dlaunch: Dlaunch, open_terminal: Callable[..., Terminal]) -> None:
    job = start_job(dlaunch, STEPS)
    terminal = open_terminal()
    terminal.start(job)
    terminal.shows("step 1")
    with stopped(dlaunch.wait_for_ranks(job, 4)[2]):
        assert in_time(terminal.shows("rank 2 stopped"), 3.0)


def test_top_survives_the_supervisor_and_a_host(dlaunch: Dlaunch, open_terminal: Callable[..., Terminal]) -> None:
    job = start_job(dlaunch, STEPS)
    terminal = open_terminal()
    terminal.start(job)
    terminal.shows("step 1")
    supervisor = dlaunch.record(job).supervisor
    assert supervisor is not None
    psutil.Process(supervisor.pid).kill()
    psutil.Process(dlaunch.statuses(job)[1].pid).kill()
    terminal.shows("node1 does not answer")
    before = terminal.text()
    wait_until(lambda: terminal.text() != before, "the other host goes on")
    terminal.type("q")
    terminal.shows("ready$")
    assert terminal.is_restored()


def test_the_doctor_names_a_stopped_rank_within_ten_seconds(
    dlaunch: Dlaunch, open_terminal: Callable[..., Terminal]
) -> None:
    job = start_job(dlaunch, REDUCE)
    terminal = open_terminal(columns=160, lines=40)
    terminal.start(job)
    terminal.shows("step 1", 120)
    with stopped(dlaunch.wait_for_ranks(job, 4)[2]):
        terminal.shows("rank 2 stopped")
        terminal.type("d")
        assert in_time(terminal.shows("hang.absent_rank"), 10.0)
        finding = next(line for line in terminal.text().splitlines() if line.startswith("error"))
        assert finding.split()[:3] == ["error", "hang.absent_rank", "2"]
        terminal.type("b")
        terminal.shows("rank 0 · node0 dp_replicate0 · sleeping · step ")
        terminal.shows(" · in all_reduce #")


def test_on_hang_runs_the_command(dlaunch: Dlaunch, open_terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    job = start_job(dlaunch, STEPS)
    told = tmp_path / "told"
    terminal = open_terminal()
    terminal.start(job, "--on-hang", f"echo $DLAUNCH_ALARM $DLAUNCH_ALARM_RANKS >> {told}")
    terminal.shows("step 1")
    with stopped(dlaunch.wait_for_ranks(job, 4)[2]):
        wait_until(told.exists, "the command")
        wait_until(lambda: told.read_text() == "stopped 2\n", "its words")
