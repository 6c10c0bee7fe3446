"""A screen that shows one text, asked for anew on a key: the base of stacks and topology."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui.headline import headline
from tui.snapshot import Snapshot
from tui.view import Line, View, keys
from tui.widgets.log import LogView


class TextScreen(View):
    """`ask` begins to get the text; whoever has it calls `put`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy", "copy"),
        Binding("escape,b", "app.leave", "back"),
    ]

    def compose(self) -> ComposeResult:
        yield Line(id="head")
        yield Line(id="legend")
        yield LogView(id="log")
        yield Line(keys(*self.KEYS), id="keys")

    def on_mount(self) -> None:
        self.query_one(LogView).focus()
        self.action_ask()

    def show(self, snapshot: Snapshot) -> None:
        self.query_one("#head", Line).set(headline(snapshot, self.top.marks))

    def action_ask(self) -> None:
        """Get the text, without waiting for it."""
        raise NotImplementedError

    def say(self, words: str) -> None:
        """The line over the text."""
        self.query_one("#legend", Line).set(f" {words}")

    def put(self, lines: Iterable[str]) -> None:
        """Show the text from its beginning."""
        view = self.query_one(LogView)
        view.clear()
        view.follows = False
        view.add(("", line) for line in lines)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard("\n".join(self.query_one(LogView).lines_shown))
        self.notify("copied")
