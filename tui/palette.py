"""Colours of cells, safe for colour-blind eyes: magnitudes from dark blue to yellow (cividis), states after Okabe-Ito.

Without colour every code is a letter.
"""

from __future__ import annotations

from functools import cache

from rich.color import Color
from rich.style import Style

from tui.metrics import ALARM, CURSOR, LEVELS, STATE_BASE, STATE_OF_CODE, UNKNOWN

BACKGROUND = "#101418"
_SCALES = {
    "cividis": (
        "#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838",
    ),
    "viridis": (
        "#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725",
    ),
    "grey": (
        "#303030", "#464646", "#5c5c5c", "#727272", "#888888", "#9e9e9e", "#b4b4b4", "#cacaca", "#e0e0e0", "#ffffff",
    ),
}  # fmt: skip
PALETTES = tuple(_SCALES)
_STATE_COLOURS = {
    "unknown": "#5a5a5a",
    "starting": "#56b4e9",
    "running": "#009e73",
    "sleeping": "#009e73",
    "disk-sleep": "#cc79a7",
    "stopped": "#e69f00",
    "gone": "#d55e00",
}
ALARM_COLOUR = "#d55e00"


def _level(palette: str, level: int) -> str:
    """The colour of a level, between the two nearest of the scale."""
    scale = _SCALES[palette]
    place = level / (LEVELS - 1) * (len(scale) - 1)
    low = min(int(place), len(scale) - 2)
    part = place - low
    a, b = Color.parse(scale[low]).get_truecolor(), Color.parse(scale[low + 1]).get_truecolor()
    mixed = (round(x + (y - x) * part) for x, y in zip(a, b, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


@cache
def colour(palette: str, code: int) -> str:
    """The colour of a cell's code; -1 is the background."""
    if code < 0:
        return BACKGROUND
    if code < LEVELS:
        return _level(palette, code)
    if code >= STATE_BASE:
        return _STATE_COLOURS[STATE_OF_CODE[code]]
    return {UNKNOWN: _STATE_COLOURS["unknown"], ALARM: ALARM_COLOUR, CURSOR: "#ffffff"}[code]


@cache
def pair_style(palette: str, upper: int, lower: int) -> Style:
    """Two cells in one character: the upper half block in the first colour on the second."""
    return Style(color=colour(palette, upper), bgcolor=colour(palette, lower))


@cache
def block_style(palette: str, code: int) -> Style:
    """A cell with text on it: dark text on bright colours."""
    back = colour(palette, code)
    red, green, blue = Color.parse(back).get_truecolor()
    bright = 0.299 * red + 0.587 * green + 0.114 * blue > 110
    return Style(color="#000000" if bright else "#ffffff", bgcolor=back)
