"""Ctrl-C in a real terminal asks; its answers are stop, detach and go on."""

from __future__ import annotations

import os
import pty
import subprocess
from contextlib import suppress

import pytest

from tests.support.dlaunch import SAY_AND_WAIT, Dlaunch, no_members, ready, wait_until

pytestmark = pytest.mark.timeout(200)


class Terminal:
    """`dlaunch run` in a pseudo-terminal of its own."""

    def __init__(self, dlaunch: Dlaunch, *args: str) -> None:
        self.master, slave = pty.openpty()
        self.seen = b""
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *dlaunch.argv(*args)], env={**dlaunch.env, "TERM": "xterm"}, cwd=dlaunch.work,
            stdin=slave, stdout=slave, stderr=slave,
        )  # fmt: skip
        os.close(slave)
        os.set_blocking(self.master, False)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def shows(self, text: str) -> bool:
        with suppress(OSError):  # nothing there yet, or the other side is closed
            self.seen += os.read(self.master, 1 << 16)
        return text.encode() in self.seen

    def wait_for(self, text: str) -> None:
        wait_until(lambda: self.shows(text), f"the terminal shows {text!r}")

    def ended(self) -> bool:
        self.shows("")
        return self.process.poll() is not None

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(dlaunch: Dlaunch):  # type: ignore[no-untyped-def]
    script = dlaunch.script(SAY_AND_WAIT)
    shown = Terminal(dlaunch, "run", script, "--nodes", "1", "--nproc-per-node", "1")
    ready(dlaunch.work, [0])
    shown.wait_for("rank 0 attempt 0")
    shown.type("\x03")
    shown.wait_for("[d]etach")
    yield shown
    shown.close()


def test_stop(dlaunch: Dlaunch, terminal: Terminal) -> None:
    terminal.type("s\n")
    wait_until(terminal.ended, "the command ends")
    assert dlaunch.json("ps")["jobs"][0]["state"] == "stopped"
    no_members(dlaunch.json("ps")["jobs"][0]["job"])


def test_detach(dlaunch: Dlaunch, terminal: Terminal) -> None:
    terminal.type("d\n")
    wait_until(terminal.ended, "the command ends")
    assert terminal.process.returncode == 130
    assert dlaunch.json("ps")["jobs"][0]["state"] == "running"
    (dlaunch.work / "go").touch()
    assert dlaunch.json("wait", "last")["state"] == "succeeded"


def test_go_on(dlaunch: Dlaunch, terminal: Terminal) -> None:
    terminal.type("g\n")
    (dlaunch.work / "go").touch()
    wait_until(terminal.ended, "the command ends")
    assert terminal.process.returncode == 0 and terminal.shows("succeeded")


def test_a_second_one_stops(dlaunch: Dlaunch, terminal: Terminal) -> None:
    terminal.type("\x03")
    wait_until(terminal.ended, "the command ends")
    assert dlaunch.json("ps")["jobs"][0]["state"] == "stopped"
