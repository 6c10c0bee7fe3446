"""Tables of nccl-tests (all_reduce_perf and its siblings), old and new, under srun, mpirun or bare."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ROW = re.compile(  # size, count and type, behind whatever a launcher or a log put before them
    r"(?:^|(?<=[\s:>)\]|]))\d+\s+\d+\s+(?:u?int\d+|u?int|char|half|float|double|bfloat16|f(?:loat|p)?8\w*)\s.*$"
)


@dataclass(frozen=True)
class BandwidthRow:
    """One message size in bytes; times in µs, bandwidths in GB/s; `wrong` is None where results were not checked."""

    size: int
    count: int
    type: str
    time_us: float
    algbw: float
    busbw: float
    in_place_time_us: float
    in_place_algbw: float
    in_place_busbw: float
    wrong: int | None
    cells: Sequence[str]


@dataclass(frozen=True)
class BandwidthTable:
    rows: Sequence[BandwidthRow]
    average_busbw: float | None
    out_of_bounds: tuple[int, str] | None
    devices: int
    hosts: Sequence[str]  # on which the listed ranks run, in their order


def parse_tables(text: str) -> BandwidthTable:
    rows = [row for line in text.splitlines() if (row := parse_row(line))]
    average = re.search(r"# Avg bus bandwidth\s*:\s*([\d.]+)", text)
    bounds = re.search(r"# Out of bounds values\s*:\s*(\d+)\s+(\w+)", text)
    return BandwidthTable(
        rows,
        float(average[1]) if average else None,
        (int(bounds[1]), bounds[2]) if bounds else None,
        len(re.findall(r"#\s+Rank\s+\d+ .*?Pid", text)),
        tuple(dict.fromkeys(re.findall(r"#\s+Rank\s+\d+ .*?Pid\s+\d+ on\s+(\S+)", text))),
    )


def parse_row(line: str) -> BandwidthRow | None:
    """A row ends in twice (time, algbw, busbw, errors); the columns before these differ by operation and version."""
    row = _ROW.search(line)
    cells = row[0].split() if row else []
    if len(cells) < 11:
        return None
    try:
        out, inside = [float(cell) for cell in cells[-8:-5]], [float(cell) for cell in cells[-4:-1]]
    except ValueError:
        return None
    wrong = sum(int(cell) for cell in (cells[-5], cells[-1]) if cell.isdigit())
    checked = cells[-5].isdigit() or cells[-1].isdigit()
    head = int(cells[0]), int(cells[1]), cells[2]
    times = (out[0], out[1], out[2], inside[0], inside[1], inside[2])
    return BandwidthRow(*head, *times, wrong if checked else None, tuple(cells))
