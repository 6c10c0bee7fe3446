"""The heat map of ranks, drawn line by line: a rank is half a character where there are many."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui.grid import LABELLED, Grid, by_axes, by_host
from tui.metrics import CURSOR, LETTER_OF_CODE, METRICS, Codes, Metric, codes
from tui.palette import block_style, pair_style
from tui.snapshot import Snapshot

_GUTTER = 10
_WIDEST_CELL = 8
_NARROW = 60
_DIM = Style(dim=True)


class HeatMap(Widget, can_focus=True):
    """Shows a metric of all ranks; posts Moved when the cursor moves to other ranks and Chosen when they are picked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(0,-1)", "left", show=False),
        Binding("right,l", "move(0,1)", "right", show=False),
        Binding("up,k", "move(-1,0)", "up", show=False),
        Binding("down,j", "move(1,0)", "down", show=False),
        Binding("enter", "choose", "open", show=False),
    ]

    class Moved(Message):
        """The ranks under the cursor."""

        def __init__(self, ranks: list[int]) -> None:
            super().__init__()
            self.ranks = ranks

    class Chosen(Moved):
        """The ranks that were picked."""

    def __init__(self, *, colourless: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.colourless = colourless
        self.palette = "cividis"
        self.metric: Metric = METRICS[0]
        self.sides: tuple[str, str] | None = None
        self.cursor = (0, 0)
        self.grid: Grid | None = None
        self._snapshot: Snapshot | None = None
        self._cells: Codes = np.zeros((0, 0), dtype=np.int8)
        self._shape: object = None

    def show(self, snapshot: Snapshot) -> None:
        """Draw a new picture: only the lines that changed."""
        self._snapshot = snapshot
        self._lay_out()
        if self.grid is None:
            return
        cells = self.grid.worst(codes(self.metric, snapshot))
        if cells.shape != self._cells.shape:
            self._cells = cells
            self.refresh()
            return
        changed = np.flatnonzero((cells != self._cells).any(axis=1))
        self._cells = cells
        width = self.size.width
        for line in {int(row) // self._rows_a_line for row in changed}:
            self.refresh(Region(0, line, width, 1))

    def redraw(self) -> None:
        """After a change of metric, sides or palette."""
        self._shape = None
        if self._snapshot is not None:
            self._cells = np.zeros((0, 0), dtype=np.int8)
            self.show(self._snapshot)

    @property
    def title(self) -> str:
        return f"{self.metric.label} · {self.grid.title}" if self.grid else self.metric.label

    def ranks(self) -> list[int]:
        """The ranks under the cursor."""
        return self.grid.ranks(*self.cursor) if self.grid else []

    def go_to(self, rank: int) -> None:
        if self.grid:
            self._move_to(*self.grid.place(rank))

    def _lay_out(self) -> None:
        snapshot, width, height = self._snapshot, self.size.width, self.size.height
        if snapshot is None or not width or not height or not snapshot.world_size:
            return
        shape = (width, height, self.sides, snapshot.job.attempt, snapshot.job.hosts, snapshot.world_size)
        if shape == self._shape:
            return
        self._shape = shape
        columns, rows = width - self._gutter, height if self.colourless else 2 * height
        job = snapshot.job
        self.grid = by_axes(job, *self.sides, columns, rows) if self.sides else by_host(job, columns, rows, height)
        row, column = self.cursor
        self.cursor = min(row, self.grid.rows - 1), min(column, self.grid.columns - 1)

    @property
    def _gutter(self) -> int:
        return _GUTTER if self.size.width >= _NARROW else 0

    @property
    def _cell_width(self) -> int:
        assert self.grid is not None
        return max(1, min(_WIDEST_CELL, (self.size.width - self._gutter) // self.grid.columns))

    @property
    def _labelled(self) -> bool:
        return self.grid is not None and self._cell_width >= LABELLED and self.grid.rows <= self.size.height

    @property
    def _rows_a_line(self) -> int:
        return 1 if self.colourless or self._labelled else 2

    def on_resize(self) -> None:
        self.redraw()

    def render_line(self, y: int) -> Strip:
        first = y * self._rows_a_line
        if self.grid is None or first >= len(self._cells):
            return Strip.blank(self.size.width)
        label = f"{self.grid.row_labels[first][: _GUTTER - 1]:<{_GUTTER}}" if self._gutter else ""
        cells = self._one_row(first) if self._labelled or self.colourless else self._two_rows(first)
        return Strip([Segment(label, _DIM), *cells]).adjust_cell_length(self.size.width)

    def _marked(self, row: int) -> list[int]:
        """The codes of a row, the cursor's cell among them while we have the focus."""
        if row >= len(self._cells):
            return [-1] * self._cells.shape[1]
        found: list[int] = self._cells[row].tolist()
        if self.has_focus and self.cursor[0] == row:
            found[self.cursor[1]] = CURSOR
        return found

    def _two_rows(self, row: int) -> list[Segment]:
        """Half blocks, equal neighbours merged into one segment."""
        width, segments, run = self._cell_width, [], 0
        before: tuple[int, int] | None = None
        for pair in zip(self._marked(row), self._marked(row + 1), strict=True):
            if pair != before and before is not None:
                segments.append(Segment("▀" * (run * width), pair_style(self.palette, *before)))
                run = 0
            before, run = pair, run + 1
        if before is not None:
            segments.append(Segment("▀" * (run * width), pair_style(self.palette, *before)))
        return segments

    def _one_row(self, row: int) -> list[Segment]:
        assert self.grid is not None
        width, segments = self._cell_width, []
        for column, code in enumerate(self._cells[row].tolist()):
            here = self.has_focus and self.cursor == (row, column)
            letter = LETTER_OF_CODE.get(code, " ")
            ranks = self.grid.ranks(row, column) if width >= LABELLED and code >= 0 else []
            text = f"{ranks[0]}" if ranks else letter
            if self.colourless:
                body = f"{text}{letter}" if ranks and len(text) < width - 1 else letter
                segments.append(Segment(f"{body:^{width}}"[:width], Style(reverse=here)))
            else:
                style = block_style(self.palette, CURSOR if here else code)
                segments.append(Segment(f"{text:^{width - 1}}"[: width - 1], style))
                segments.append(Segment(" "))
        return segments

    def action_move(self, down: int, across: int) -> None:
        self._move_to(self.cursor[0] + down, self.cursor[1] + across)

    def action_choose(self) -> None:
        if ranks := self.ranks():
            self.post_message(self.Chosen(ranks))

    def _move_to(self, row: int, column: int) -> None:
        if self.grid is None:
            return
        before = self.cursor
        self.cursor = max(0, min(row, self.grid.rows - 1)), max(0, min(column, self.grid.columns - 1))
        for at in {before[0], self.cursor[0]}:
            self.refresh(Region(0, at // self._rows_a_line, self.size.width, 1))
        self.post_message(self.Moved(self.ranks()))

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        if self.grid is None:
            return
        row, column = event.y * self._rows_a_line, (event.x - self._gutter) // self._cell_width
        if 0 <= column < self.grid.columns and row < self.grid.rows:
            again = (row, column) == self.cursor
            self._move_to(row, column)
            if event.chain > 1 or again:
                self.action_choose()
