"""Which rank is drawn in which cell. Where space is short several ranks share a cell, which shows the worst of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tui.metrics import Codes
from tui.snapshot import Index, JobInfo

_LONGEST_AXIS = 6  # characters of an axis' name that fit before its numbers
LABELLED = 4  # columns of a cell from which on it holds its rank's number


@dataclass(frozen=True)
class Grid:
    """`cell_of[rank]` is row x columns + column. `row_labels` has one text a row, `title` says what the sides are."""

    rows: int
    columns: int
    cell_of: Index
    row_labels: Sequence[str]
    title: str

    def worst(self, codes: Codes) -> Codes:
        """The highest code of each cell, shape (rows, columns); -1 where there is no rank."""
        cells = np.full(self.rows * self.columns, -1, dtype=np.int8)
        np.maximum.at(cells, self.cell_of, codes)
        return cells.reshape(self.rows, self.columns)

    @cached_property
    def _order(self) -> tuple[Index, Index]:
        order = np.argsort(self.cell_of, kind="stable")
        return order, self.cell_of[order]

    def ranks(self, row: int, column: int) -> list[int]:
        """The ranks of a cell in order."""
        order, cells = self._order
        cell = row * self.columns + column
        first, last = np.searchsorted(cells, [cell, cell + 1])
        return [int(rank) for rank in order[first:last]]

    def place(self, rank: int) -> tuple[int, int]:
        row, column = divmod(int(self.cell_of[rank]), self.columns)
        return row, column


def by_host(job: JobInfo, columns: int, rows: int, lines: int) -> Grid:
    """Hosts one after the other, the ranks of a host side by side; at most `columns` x `rows` cells.

    As few hosts as possible share a row, so that cells are large; they keep to `lines` rows where their ranks'
    numbers fit then.
    """
    node = job.nodes
    local = np.asarray(job.local_rank, dtype=np.int64)
    widest = int(local.max()) + 1 if len(local) else 1
    fold = _fold(widest, len(job.hosts), max(columns, 1), max(rows, 1))
    if fold <= widest:
        cells = math.ceil(widest / fold)  # of a host
        hosts_a_row = _share(len(job.hosts), lines)
        if hosts_a_row * cells * LABELLED > columns:
            hosts_a_row = _share(len(job.hosts), rows)
        cell_of = (node // hosts_a_row) * hosts_a_row * cells + (node % hosts_a_row) * cells + local // fold
        return _flow(job, cell_of, hosts_a_row * cells, hosts_a_row, "hosts")
    hosts_a_cell = math.ceil(fold / widest)
    return _flow(job, node // hosts_a_cell, columns, columns * hosts_a_cell, f"hosts, {hosts_a_cell} a cell")


def _share(hosts: int, rows: int) -> int:
    return max(1, math.ceil(hosts / max(rows, 1)))


def _fold(widest: int, hosts: int, columns: int, rows: int) -> int:
    """How many ranks share a cell: as few as fit; parts of a host first, then whole hosts."""
    for fold in range(1, widest + 1):
        cells = math.ceil(widest / fold)
        if cells <= columns and math.ceil(hosts / (columns // cells)) <= rows:
            return fold
    return math.ceil(hosts / (columns * rows)) * widest


def _flow(job: JobInfo, cell_of: Index, columns: int, hosts_a_row: int, title: str) -> Grid:
    rows = int(cell_of.max()) // columns + 1 if len(cell_of) else 1
    labels = [job.hosts[min(row * hosts_a_row, len(job.hosts) - 1)] if job.hosts else "" for row in range(rows)]
    return Grid(rows, columns, cell_of, labels, title)


def by_axes(job: JobInfo, down: str, across: str, columns: int, rows: int) -> Grid:
    """Axis `down` from top to bottom, `across` from left to right, all other axes folded into the cells."""
    shape = tuple(job.mesh.values())
    names = list(job.mesh)
    positions = np.unravel_index(np.arange(job.world_size), shape)
    tall, wide = job.mesh[down], job.mesh[across]
    fold_down, fold_across = math.ceil(tall / max(rows, 1)), math.ceil(wide / max(columns, 1))
    row = positions[names.index(down)] // fold_down
    column = positions[names.index(across)] // fold_across
    grid_rows, grid_columns = math.ceil(tall / fold_down), math.ceil(wide / fold_across)
    prefix = down if len(down) < _LONGEST_AXIS else ""
    labels = [f"{prefix}{index * fold_down}" for index in range(grid_rows)]
    folded = [name for name in names if name not in (down, across) and job.mesh[name] > 1]
    title = f"{down} ↓ × {across} →" + (f", worst over {', '.join(folded)}" if folded else "")
    return Grid(grid_rows, grid_columns, row * grid_columns + column, labels, title)


def layouts(job: JobInfo) -> list[tuple[str, str] | None]:
    """The choices: None for hosts, then every pair of axes with more than one position (down, across)."""
    axes = [name for name, size in job.mesh.items() if size > 1]
    if math.prod(job.mesh.values()) != job.world_size:
        return [None]
    pairs: list[tuple[str, str] | None] = [(a, b) for a in axes for b in axes if a != b]
    return [None, *pairs]
