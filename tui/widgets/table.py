"""A table on the line API: it builds only the lines that are seen, so its rows may change with every frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.rows import Column, Row

_HEADER = Style(bold=True, dim=True)
_CURSOR = Style(reverse=True)


class LineTable(ScrollView, can_focus=True):
    """Rows with a cursor; posts Chosen when one is picked. The cursor stays on its row when rows move."""

    DEFAULT_CSS = "LineTable { overflow-x: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(-1)", "up", show=False),
        Binding("down,j", "step(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home,g", "to(0)", "top", show=False),
        Binding("end,G", "to(-1)", "bottom", show=False),
        Binding("enter", "choose", "open", show=False),
    ]

    class Chosen(Message):
        """The key of the row that was picked."""

        def __init__(self, table: LineTable, key: str) -> None:
            super().__init__()
            self.table = table
            self.key = key

        @property
        def control(self) -> LineTable:
            return self.table

    def __init__(self, *columns: Column, empty: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self.columns = columns
        self.rows: Sequence[Row] = ()
        self.cursor = 0
        self._empty = empty

    @property
    def key(self) -> str | None:
        """The key of the row under the cursor."""
        return self.rows[self.cursor].key if self.rows else None

    def set_rows(self, rows: Sequence[Row]) -> None:
        if rows == self.rows:
            return
        key, self.rows = self.key, rows
        keys = [row.key for row in rows]
        self.cursor = keys.index(key) if key in keys else min(self.cursor, max(0, len(rows) - 1))
        self.virtual_size = Size(self.size.width, len(rows) + 1)
        self.refresh()

    def _widths(self) -> list[int]:
        fixed = sum(column.width for column in self.columns) + len(self.columns) - 1
        flexible = [column for column in self.columns if not column.width]
        share = max(4, (self.scrollable_content_region.width - fixed) // len(flexible)) if flexible else 0
        return [column.width or share for column in self.columns]

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        if y == 0:
            return Strip([Segment(self._line([column.label for column in self.columns]), _HEADER)]).adjust_cell_length(
                width
            )
        place = y - 1 + self.scroll_offset.y
        if place >= len(self.rows):
            text = self._empty if not self.rows and y == 1 else ""
            return Strip([Segment(text)]).adjust_cell_length(width)
        row = self.rows[place]
        style = row.style + _CURSOR if place == self.cursor and self.has_focus else row.style
        return Strip([Segment(self._line(row.cells), style)]).adjust_cell_length(width, style)

    def _line(self, cells: Sequence[str]) -> str:
        return " ".join(
            text[:width].rjust(width) if column.right else set_cell_size(text, width)
            for column, width, text in zip(self.columns, self._widths(), cells, strict=True)
        )

    def action_step(self, by: int) -> None:
        self._go(self.cursor + by)

    def action_page(self, by: int) -> None:
        self._go(self.cursor + by * max(1, self.size.height - 2))

    def action_to(self, place: int) -> None:
        self._go(place if place >= 0 else len(self.rows) - 1)

    def action_choose(self) -> None:
        if self.key is not None:
            self.post_message(self.Chosen(self, self.key))

    def _go(self, place: int) -> None:
        self.cursor = max(0, min(place, len(self.rows) - 1))
        top, page = self.scroll_offset.y, max(1, self.size.height - 1)
        if not top <= self.cursor < top + page:
            y = self.cursor if self.cursor < top else self.cursor - page + 1
            self.scroll_to(y=y, animate=False, force=True)  # new rows may not have their scrollbar yet
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        place = event.y - 1 + self.scroll_offset.y
        if event.y >= 1 and place < len(self.rows):
            again = place == self.cursor
            self._go(place)
            if again:
                self.action_choose()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()
