"""The stacks of all ranks as one merged tree, taken anew on `s`."""

from __future__ import annotations

import time
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType

from tui.commands import run_text
from tui.screens.text import TextScreen


class StacksScreen(TextScreen):
    """Runs `ddoctor stacks` beside the job."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "ask", "take again"), *TextScreen.BINDINGS]
    KEYS = ("s again", "hjkl move", "y copy", "b back", "? help")
    HELP = "Where every rank's threads are; equal stacks stand once, with the ranks that share them."

    def __init__(self) -> None:
        super().__init__()
        self._began = 0.0
        self._status = ""

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(0.5, self._tick)

    def action_ask(self) -> None:
        self._began, self._status = time.monotonic(), ""
        self._take()

    @work(exclusive=True, group="stacks")
    async def _take(self) -> None:
        status, stdout, stderr = await run_text(self.command())
        took = time.monotonic() - self._began
        self._status = f"taken in {took:.1f} s" if status in (0, 1) else f"exit status {status}"
        self.put((stdout or stderr).splitlines())
        self._tick()

    def _tick(self) -> None:
        waiting = f"looking for {time.monotonic() - self._began:.0f} s…"
        self.say(f"stacks: {self._status or waiting}")

    def command(self) -> list[str]:
        return ["ddoctor", "stacks", self.top.target]
