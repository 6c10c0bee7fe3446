"""Tables: a line of column names, and under it lines of numbers (CSV, Markdown, aligned columns)."""

from __future__ import annotations

import re
from typing import NamedTuple

from launcher.common.progress.pairs import clean
from launcher.common.progress.vocabulary import meaning

_SEPARATORS = tuple(map(re.compile, (r"\s*,\s*", r"\s*\|\s*", r"\s*\t\s*", r"\s{2,}")))
_NAME = re.compile(r"[^\W\d][\w/ .()%\-]{0,40}")
_NUMBER = re.compile(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?|nan|inf", re.I)
_NOTHING = re.compile(r"[-–]*|n/?a|none|no log|\d{4}-\d\d-\d\d[T ][\d:.+Z]+", re.I)
_LEAST = 2  # columns
_LONGEST = 1000  # characters of a line of names


class Columns(NamedTuple):
    """What stands between the cells, and the names of the columns."""

    separator: re.Pattern[str]
    names: tuple[str, ...]


def columns(text: str) -> Columns | None:
    """The columns that a line names; None if it is no such line, or names no step or no training loss."""
    if len(text) > _LONGEST:
        return None
    for separator in _SEPARATORS:
        names = _cells(separator, text)
        if len(names) >= _LEAST and all(map(_NAME.fullmatch, names)):
            told = {meaning(name, "", True).field for name in names}
            return Columns(separator, names) if {"counter", "loss"} <= told else None
    return None


def named_row(table: Columns, text: str) -> str | None:
    """A line of the table with the names written to its numbers, as other loggers write it; None for other lines.

    Columns of validation are left out: beside a training loss they make the row no evaluation.
    """
    cells = _cells(table.separator, text)
    if len(cells) != len(table.names) or not all(_NUMBER.fullmatch(one) or _NOTHING.fullmatch(one) for one in cells):
        return None
    named = zip(table.names, cells, strict=True)
    told = ((name, cell) for name, cell in named if meaning(name, "", True).field != "held_out")
    return ", ".join(f"{name}: {cell}" for name, cell in told if _NUMBER.fullmatch(cell))


def _cells(separator: re.Pattern[str], text: str) -> tuple[str, ...]:
    return tuple(separator.split(clean(text).strip().strip("|").strip()))
