"""A small plot over time: a title with the newest value and a few lines of eighth blocks."""

from __future__ import annotations

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from tui.snapshot import Floats

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " ..::--=#"
_LINE = Style(color="#56b4e9")


def sparks(values: Floats, width: int, height: int, blocks: str = _BLOCKS) -> list[str]:
    """`height` texts of `width` characters, the newest value right; values that are not known leave a gap."""
    shown = resample(values, width)
    known = shown[~np.isnan(shown)]
    if not len(known):
        return [" " * width] * height
    low, high = float(known.min()), float(known.max())
    span = (high - low) or 1.0
    eighths = np.where(np.isnan(shown), 0, 1 + (shown - low) / span * (height * 8 - 1)).astype(int)
    padded = [0] * (width - len(eighths)) + [int(value) for value in eighths]
    return [
        "".join(blocks[max(0, min(8, value - 8 * level))] for value in padded) for level in range(height - 1, -1, -1)
    ]


def resample(values: Floats, width: int) -> Floats:
    """At most `width` values, each the mean of its share of the known ones."""
    if len(values) <= width:
        return values
    shares = np.array_split(values, width)
    return np.array([np.nan if np.isnan(share).all() else np.nanmean(share) for share in shares])


class Plot(Widget):
    """One series."""

    def __init__(self, label: str, unit: str = "", *, colourless: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.label = label
        self._unit = unit
        self._blocks = _ASCII if colourless else _BLOCKS
        self._values: Floats = np.zeros(0)
        self._lines: list[str] = []

    def show(self, values: Floats) -> None:
        if len(values) == len(self._values) and np.array_equal(values, self._values, equal_nan=True):
            return
        self._values = values
        self._lines = []
        self.refresh()

    def on_resize(self) -> None:
        self._lines = []

    @property
    def newest(self) -> float:
        known = self._values[~np.isnan(self._values)]
        return float(known[-1]) if len(known) else float("nan")

    def render_line(self, y: int) -> Strip:
        width, height = self.size.width, self.size.height
        if y == 0:
            value = "–" if np.isnan(self.newest) else f"{self.newest:.4g} {self._unit}"
            return Strip([Segment(f"{self.label} "), Segment(value, Style(bold=True))]).adjust_cell_length(width)
        if not self._lines:
            self._lines = sparks(self._values, max(1, width - 1), max(1, height - 1), self._blocks)
        return Strip([Segment(self._lines[min(y - 1, len(self._lines) - 1)], _LINE)]).adjust_cell_length(width)
