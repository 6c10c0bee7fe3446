"""Bytes of a log, as they come, to the training steps that they tell of."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from launcher.common.progress.grammar import Reading, header, may_say_progress, measures, read_line, wrapped
from launcher.common.progress.record import Progress
from launcher.common.progress.tables import Columns, columns, named_row

_RETURNS = re.compile(r"\r|\^M(?!\w)")  # carriage returns, and as they are spelt by tools that show them
_LONGEST_TAIL = 1 << 20  # bytes of a line without an end that are kept
_BLOCK_LINES = 40  # lines after a header that may still belong to it
_ROW_LINES = 6  # lines over which a row may be wrapped


class _Open(NamedTuple):
    """A record that the next lines may add to; `row` is its text so far, empty for the block under a header."""

    progress: Progress
    row: str
    lines_left: int


class LogReader:
    """Reads a live log piece by piece: feed bytes, get records.

    A record that may go on in the next line is given out when that line is known; `pending` shows it meanwhile.
    Steps may go back (a resume) and repeat (each rank prints): folding them is left to the user of the records.
    """

    def __init__(self) -> None:
        self._tail = b""
        self._line = 0
        self._open: _Open | None = None
        self._bar_total: int | None = None
        self._full = False  # a whole report of a step was seen: lines with rates alone repeat it
        self._table: Columns | None = None  # the last line that named columns
        self._trained = False  # a line without validation was seen: lines with it are no steps

    @property
    def pending(self) -> Progress | None:
        """The record that is not given out yet, if it measures anything."""
        return self._open.progress if self._open and self._open.progress.measured else None

    def feed(self, data: bytes) -> list[Progress]:
        """The records that `data` completes."""
        *lines, tail = (self._tail + data).split(b"\n")
        self._tail = tail[-_LONGEST_TAIL:]
        return [record for line in lines for record in self._read(line)]

    def close(self) -> list[Progress]:
        """The records of the last line and of what was still open; the reader can then be fed a new log."""
        records = self._read(self._tail) if self._tail else []
        records += self._finish()
        self._tail = b""
        return records

    def _read(self, line: bytes) -> list[Progress]:
        self._line += 1
        records: list[Progress] = []
        for segment, part in enumerate(_RETURNS.split(line.decode(errors="replace"))):
            if part and not part.isspace():
                records += self._read_part(part, segment)
        return records

    def _read_part(self, text: str, segment: int) -> list[Progress]:
        text = (named_row(self._table, text) if self._table else None) or text
        if self._open is None and not may_say_progress(text):
            return []
        reading = read_line(text)
        begins = reading is not None and reading.progress.step is not None
        if self._open is not None and not begins and self._continue(self._open, text):
            return []
        return self._finish() + self._start(text, segment, reading)

    def _start(self, text: str, segment: int, reading: Reading | None) -> list[Progress]:
        if reading is None:
            self._table = columns(text) or self._table
            announced = header(text)
            if announced is not None:
                record = replace(announced, line=self._line, segment=segment)
                self._open = _Open(record, "", _BLOCK_LINES)
            return []
        if not self._counts(reading):
            return []
        record = replace(reading.progress, line=self._line, segment=segment)
        if reading.row:
            self._open = _Open(record, text, _ROW_LINES)
            return []
        return [record]

    def _counts(self, reading: Reading) -> bool:
        """Whether it is a step, seen with the lines before it."""
        progress = reading.progress
        if reading.bar:
            if not reading.described and progress.loss is None:
                self._bar_total = self._bar_total or progress.total
                return progress.total == self._bar_total
            return True
        if reading.held_out and progress.loss is None and self._trained:
            return False
        rates_alone = progress.loss is None and not progress.losses and progress.lr is None
        if rates_alone and self._full and progress.grad_norm is None and progress.measured:
            return False
        self._full = self._full or reading.full
        self._trained = self._trained or not reading.held_out
        return True

    def _continue(self, opened: _Open, text: str) -> bool:
        """Adds a line to the open record; False if it does not belong to it."""
        if not opened.lines_left or header(text) is not None:
            return False
        if opened.row:
            progress = wrapped(opened.row, text, opened.progress)
            if progress is None:
                return False
        else:
            progress = measures(text).merged(opened.progress)
        place = opened.progress
        progress = replace(progress, line=place.line, segment=place.segment)
        self._open = _Open(progress, opened.row and opened.row + text, opened.lines_left - 1)
        return True

    def _finish(self) -> list[Progress]:
        record = self.pending
        self._open = None
        return [record] if record is not None else []
