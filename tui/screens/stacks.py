"""The stacks of all ranks as one merged tree, taken anew on `s`."""

from __future__ import annotations

import time
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui.commands import run_text
from tui.snapshot import Snapshot
from tui.view import Line, View, headline, keys
from tui.widgets.log import LogView


class StacksScreen(View):
    """Runs `ddoctor stacks` beside the job."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "take", "take again"),
        Binding("y", "copy", "copy"),
        Binding("escape,b", "app.leave", "back"),
    ]
    KEYS = ("s again", "hjkl move", "y copy", "b back", "? help")
    HELP = "Where every rank's threads are; equal stacks stand once, with the ranks that share them."

    def __init__(self) -> None:
        super().__init__()
        self._began = 0.0
        self._status = ""

    def compose(self) -> ComposeResult:
        yield Line(id="head")
        yield Line(id="legend")
        yield LogView(id="log")
        yield Line(keys(*self.KEYS), id="keys")

    def on_mount(self) -> None:
        view = self.query_one(LogView)
        view.follows = False
        view.focus()
        self.set_interval(0.5, self._tick)
        self.action_take()

    def show(self, snapshot: Snapshot) -> None:
        self.query_one("#head", Line).set(headline(snapshot, self.top.marks))

    def action_take(self) -> None:
        self._began, self._status = time.monotonic(), ""
        self._take()

    @work(exclusive=True, group="stacks")
    async def _take(self) -> None:
        status, stdout, stderr = await run_text(self.command())
        took = time.monotonic() - self._began
        self._status = f"taken in {took:.1f} s" if status in (0, 1) else f"exit status {status}"
        view = self.query_one(LogView)
        view.clear()
        view.follows = False
        view.add(("", line) for line in (stdout or stderr).splitlines())
        self._tick()

    def _tick(self) -> None:
        waiting = f"looking for {time.monotonic() - self._began:.0f} s…"
        self.query_one("#legend", Line).set(f" stacks: {self._status or waiting}")

    def action_copy(self) -> None:
        self.app.copy_to_clipboard("\n".join(self.query_one(LogView).lines_shown))
        self.notify("stacks copied")

    def command(self) -> list[str]:
        return ["ddoctor", "stacks", self.top.target]
