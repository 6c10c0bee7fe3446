"""Tables of nccl-tests (all_reduce_perf and its siblings), old and new, under srun, mpirun or bare."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ROW = re.compile(  # size, count and type, behind whatever a launcher or a log put before them
    r"(?:^|(?<=[\s:>)\]|]))\d+\s+\d+\s+(?:u?int\d+|u?int|char|half|float|double|bfloat16|f(?:loat|p)?8\w*)\s.*$"
)
_STAMP = re.compile(r"\s\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
_MANY = re.compile(r"[1-9](?:\.\d+)?e\+\d\d")
_WITH_ITERATIONS = 19  # cells; without them a row has at most thirteen


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
    average = re.search(r"\bAvg bus bandwidth\s*:\s*(\d+(?:\.\d+)?)", text)
    bounds = re.search(r"\bOut of bounds values\s*:\s*(\d+)\s+(\w+)", text)
    return BandwidthTable(
        rows,
        float(average[1]) if average else None,
        (int(bounds[1]), bounds[2]) if bounds else None,
        len(re.findall(r"\bRank\s+\d+ .*?Pid\s+\d+ on", text)),
        tuple(dict.fromkeys(re.findall(r"\bRank\s+\d+ .*?Pid\s+\d+ on\s+(\S+)", text))),
    )


def parse_row(line: str) -> BandwidthRow | None:
    """A row ends in twice (time, algbw, busbw, errors); the columns before these differ by operation and version. Four
    more may follow each time: of single iterations; and a time of day may end the row."""
    row = _ROW.search(_STAMP.sub("", line))
    cells = row[0].split() if row else []
    if len(cells) < 11:
        return None
    more = 4 if len(cells) >= _WITH_ITERATIONS else 0
    half = 4 + more
    first, second = cells[-2 * half : -half], cells[-half:]
    try:
        out, inside = [float(cell) for cell in first[:3]], [float(cell) for cell in second[:3]]
    except ValueError:
        return None
    counts = [count for cell in (first[3], second[3]) if (count := _wrong(cell)) is not None]
    head = int(cells[0]), int(cells[1]), cells[2]
    times = (out[0], out[1], out[2], inside[0], inside[1], inside[2])
    return BandwidthRow(*head, *times, sum(counts) if counts else None, tuple(cells))


def _wrong(cell: str) -> int | None:
    """How many elements are wrong; None for `N/A` and for the greatest difference, which old versions show."""
    return int(cell) if cell.isdecimal() else int(float(cell)) if _MANY.fullmatch(cell) else None
