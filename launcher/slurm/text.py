"""Slurm's text forms: scontrol's `Key=Value` records, delimited rows, and tables for people."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w:/.\-]*)=")
# Values that run to the end of their line whatever they hold; only where they stand first in it or are the name.
_FREE_TEXT = frozenset(
    {"AdminComment", "Comment", "Command", "Extra", "OS", "Reason", "StdErr", "StdIn", "StdOut", "SubmitLine"}
    | {"SystemComment", "WorkDir", "JobName"}
)
Record = dict[str, str]


@dataclass
class ScontrolRecord:
    """One job, node, partition, …: its fields, and for jobs shown with `-d` a record for each set of nodes."""

    fields: Record = field(default_factory=dict)
    details: list[Record] = field(default_factory=list)


def scontrol_records(text: str) -> list[ScontrolRecord]:
    """Read `scontrol show job|node|partition|topology`, over many lines or with `--oneliner`.

    A record starts where the first key of the text comes again at the start of a line. Comment lines are passed over.
    """
    records: list[ScontrolRecord] = []
    opening = ""
    for line in text.splitlines():
        found = [] if line.startswith("#") else list(pairs(line))
        if not found:
            continue
        opening = opening or found[0][0]
        if not records or (found[0][0] == opening and not line[0].isspace()):
            records.append(ScontrolRecord())
        if opening == "JobId" and found[0][0] == "Nodes":
            records[-1].details.append(dict(found))
        else:
            records[-1].fields.update(found)
    return records


def pairs(line: str) -> Iterator[tuple[str, str]]:
    """The `Key=Value` pairs of one line; values may hold blanks and equals signs, and may be empty."""
    keys = list(_KEY.finditer(line))
    for place, (key, following) in enumerate(zip_longest(keys, keys[1:])):
        name = key.group(1)
        free = name in _FREE_TEXT and (place == 0 or name == "JobName") and not _is_oneliner(keys)
        yield name, line[key.end() : following.start() if following and not free else len(line)].strip()
        if free:
            return


def _is_oneliner(keys: Sequence[re.Match[str]]) -> bool:
    return len(keys) > 15


def split_reason(text: str) -> tuple[str, str, str]:
    """`Kill task failed [root@2024-01-25T15:12:23]` as reason, user and time; the last two may be missing."""
    found = re.fullmatch(r"(.*?)\s*\[([^\[\]@]+)@([^\[\]]+)\]", text.strip(), re.DOTALL)
    return (found.group(1), found.group(2), found.group(3)) if found else (text.strip(), "", "")


def tres(text: str) -> dict[str, str]:
    """`cpu=8,mem=1M,gres/gpu=1` as a mapping."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


@dataclass(frozen=True)
class Rows:
    """Delimited rows; `skipped` counts the lines that do not have the right number of cells."""

    rows: list[Record]
    skipped: int = 0


def delimited(text: str, delimiter: str, columns: Sequence[str] | None = None) -> Rows:
    """Read the output of `-P`, `-o` or `-O` with a delimiter. Without `columns` the first line names them.

    Records are found by counting delimiters, since a comment may hold line breaks. A column that comes twice gives
    its last cell. Cells are stripped of padding.
    """
    lines = [line for line in text.split("\n") if line.strip()]
    if columns is None:
        columns = [cell.strip() for cell in lines[0].split(delimiter)] if lines else []
        lines = lines[1:]
    width = len(columns)
    rows, skipped, pending = [], 0, ""
    for line in lines:
        cells = (pending + "\n" + line if pending else line).split(delimiter)
        if len(cells) > width + 1 and pending:
            skipped, cells = skipped + 1, line.split(delimiter)
        if len(cells) == width + 1 and not cells[-1].strip():
            cells.pop()
        if len(cells) == width:
            rows.append({name: cell.strip() for name, cell in zip(columns, cells, strict=True)})
            pending = ""
        elif len(cells) < width:
            pending = delimiter.join(cells)
        else:
            skipped, pending = skipped + 1, ""
    return Rows(rows, skipped + bool(pending))


def table(text: str) -> list[Record]:
    """Read a table for people: one header line, perhaps a line of dashes, cells found below their headers.

    Cells may be missing (sacct) or hold blanks (reasons); a line that starts with a comma goes on with the cell above.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith(".")]
    if not lines:
        return []
    names = re.findall(r"\S+", lines[0])
    ruled = len(lines) > 1 and set(lines[1]) <= {"-", " "}
    starts = [found.start() for found in re.finditer(r"\S+", lines[1] if ruled else lines[0])]
    rows: list[Record] = []
    for line in lines[2 if ruled else 1 :]:
        if line.startswith(",") and rows:
            rows[-1][names[-1]] = rows[-1].get(names[-1], "") + line
        else:
            cells = _ruled_cells(line, starts) if ruled else _cells(line, starts)
            rows.append(dict(zip(names, cells, strict=False)))
    return rows


def _ruled_cells(line: str, starts: Sequence[int]) -> list[str]:
    """Cells of a line below dashes, which give each column's width; as words where the line does not keep to it."""
    if any(line[start - 1 : start].strip() for start in starts[1:]):
        return _cells(line, starts)
    return [line[start:end].strip() for start, end in zip_longest(starts, starts[1:])]


def _cells(line: str, starts: Sequence[int]) -> list[str]:
    words = list(re.finditer(r"\S+", line))
    if len(words) == len(starts):
        return [word.group() for word in words]
    cells = [""] * len(starts)
    for word in words:
        column = max(bisect_right(starts, word.start()) - 1, 0)
        cells[column] = f"{cells[column]} {word.group()}".strip()
    return cells


def help_options(text: str) -> frozenset[str]:
    """Long options that `sbatch --help` or `srun --help` lists."""
    return frozenset(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", text))
