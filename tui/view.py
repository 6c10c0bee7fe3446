"""What all screens share: a head line, a line of keys, and how they get their pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rich.text import Text
from textual.app import RenderResult
from textual.screen import Screen
from textual.widget import Widget

from tui.snapshot import Snapshot

if TYPE_CHECKING:
    from tui.app import TopApp


class Line(Widget):
    """One line of text that changes often."""

    DEFAULT_CSS = "Line { height: 1; width: 1fr; }"

    def __init__(self, text: str | Text = "", *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._text = text if isinstance(text, Text) else Text(text, no_wrap=True, overflow="ellipsis")

    def set(self, text: str | Text) -> None:
        new = text if isinstance(text, Text) else Text(text, no_wrap=True, overflow="ellipsis")
        if new != self._text or new.spans != self._text.spans:
            self._text = new
            self.refresh()

    @property
    def text(self) -> str:
        return self._text.plain

    def render(self) -> RenderResult:
        return self._text


def keys(*pairs: str) -> Text:
    """`keys("m metric", "? help")`: the letters stand out."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for pair in pairs:
        key, _, words = pair.partition(" ")
        text.append(f" {key} ", "reverse").append(f" {words} ")
    return text


class View(Screen[None]):
    """A screen of the job or of all jobs."""

    KEYS: tuple[str, ...] = ()
    HELP = ""

    @property
    def top(self) -> TopApp:
        return cast("TopApp", self.app)

    def present(self, snapshot: Snapshot) -> None:
        """Draw a new picture, once there is something to draw on."""
        if self.query("#head"):
            self.show(snapshot)

    def show(self, snapshot: Snapshot) -> None:
        """Draw a new picture on the screen's widgets."""

    def command(self) -> list[str]:
        """The shell command that says the same."""
        return ["dlaunch", "top"]

    def on_mount(self) -> None:
        self.on_screen_resume()

    def on_screen_resume(self) -> None:
        if self.top.snapshot is not None:
            self.present(self.top.snapshot)
