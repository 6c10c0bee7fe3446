"""Log lines of unknown origin, followed, filtered in place and selected; nothing in them reaches the terminal raw."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from launcher.common.text import printable

KEPT = 20_000  # lines
_TAB = 8
_LABEL = Style(color="#56b4e9")
_FOUND = Style(color="#101418", bgcolor="#e69f00")
_TROUBLE = Style(color="#ff8c5a")
_TROUBLED = re.compile(r"error|exception|traceback|fatal|\bwarn", re.I)


@dataclass(frozen=True)
class LogLine:
    """`label` says who wrote it: `3` or `0-7`."""

    label: str
    text: str

    def plain(self, width: int) -> str:
        return f"{self.label:>{width}} │ {self.text}" if width else self.text


class LogView(ScrollView, can_focus=True):
    """Keeps the newest lines; shows those in which the filter is found; follows the end until scrolled up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "line(-1)", "up", show=False),
        Binding("down,j", "line(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home,g", "top", "top", show=False),
        Binding("end,G", "follow", "follow", show=False),
        Binding("left,h", "side(-8)", "left", show=False),
        Binding("right,l", "side(8)", "right", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.follows = True
        self.filter: re.Pattern[str] | None = None
        self._lines: deque[LogLine] = deque(maxlen=KEPT)
        self._shown: Sequence[LogLine] = ()
        self._label_width = 0
        self._widest = 0

    @property
    def lines_shown(self) -> list[str]:
        """What the filter lets through, as text."""
        return [line.plain(self._label_width) for line in self._shown]

    def clear(self) -> None:
        self._lines.clear()
        self._label_width = self._widest = 0
        self._choose()

    def add(self, lines: Iterable[tuple[str, str]]) -> None:
        """Take in (label, text) pairs; the text may hold anything."""
        for label, text in lines:
            for part in printable(text).expandtabs(_TAB).split("\n"):
                self._lines.append(LogLine(label, part))
                self._label_width = max(self._label_width, len(label))
        self._choose()

    def set_filter(self, pattern: re.Pattern[str] | None) -> None:
        self.filter = pattern
        self._choose()

    def _choose(self) -> None:
        pattern = self.filter
        self._shown = [line for line in self._lines if pattern is None or pattern.search(line.text)]
        self._widest = max((cell_len(line.text) for line in self._shown), default=0) + self._label_width + 3
        self.virtual_size = Size(self._widest, len(self._shown))
        if self.follows:
            self.scroll_to(y=max(0, len(self._shown) - self.size.height), animate=False, force=True, immediate=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        place = y + self.scroll_offset.y
        width = self.size.width
        if place >= len(self._shown):
            return Strip.blank(width)
        line = self._shown[place]
        segments = [Segment(f"{line.label:>{self._label_width}} │ ", _LABEL)] if self._label_width else []
        segments += self._marked(line.text)
        left = self.scroll_offset.x
        strip = Strip(segments).crop_extend(left, left + width, None)
        return self._selected(strip, place, left).apply_offsets(left, place)

    def _marked(self, text: str) -> list[Segment]:
        """The text with the places that the filter found."""
        style = _TROUBLE if _TROUBLED.search(text) else None
        if self.filter is None:
            return [Segment(text, style)]
        segments, at = [], 0
        for match in self.filter.finditer(text):
            segments += [Segment(text[at : match.start()], style), Segment(match[0], _FOUND)]
            at = match.end()
        return [*segments, Segment(text[at:], style)]

    def _selected(self, strip: Strip, place: int, left: int) -> Strip:
        selection = self.text_selection
        span = selection.get_span(place) if selection is not None else None
        if span is None:
            return strip
        start, end = span
        first, last = max(0, start - left), strip.cell_length if end == -1 else max(0, end - left)
        before, chosen, after = strip.divide([first, last, strip.cell_length])
        return Strip.join(
            [before, chosen.apply_style(self.screen.get_component_rich_style("screen--selection")), after]
        )

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract("\n".join(self.lines_shown)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def action_line(self, by: int) -> None:
        self._scroll(self.scroll_offset.y + by)

    def action_page(self, by: int) -> None:
        self._scroll(self.scroll_offset.y + by * max(1, self.size.height - 1))

    def action_top(self) -> None:
        self._scroll(0)

    def action_follow(self) -> None:
        self._scroll(len(self._shown))

    def action_side(self, by: int) -> None:
        self.scroll_to(x=max(0, self.scroll_offset.x + by), animate=False)

    def _scroll(self, place: int) -> None:
        last = max(0, len(self._shown) - self.size.height)
        self.follows = place >= last
        self.scroll_to(y=max(0, min(place, last)), animate=False, force=True)

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        self.follows = round(new) >= len(self._shown) - self.size.height
