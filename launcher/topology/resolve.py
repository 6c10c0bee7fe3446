"""Blocks of a matrix -> links that can be believed, and in words what cannot.

A row counts when its one self cell stands in its own column: shifted, glued and cut rows give themselves away. A link
seen from both ends must be the same; a cell that the end of a line may have shortened needs its other end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from launcher.topology.grammar import Block, Row, is_cell
from launcher.topology.links import COUNTED, P2P_CELLS, SELF_CELLS, split_kind
from launcher.topology.model import Link

UNHEARD = re.compile(r"(?!ENABLED|DISABLED|SELF|UNKNOWN|XXXX)[A-Z]{4,}\d*")  # the name of a link of some other vendor


@dataclass(frozen=True)
class Resolved:
    """Links by their two labels, peer-access states, and what is missing or contradictory."""

    links: tuple[Link, ...]
    p2p: tuple[tuple[str, str, str], ...]
    gaps: tuple[str, ...]


def resolve(block: Block) -> Resolved:
    """Judge one block; the labels of its rows are devices and NICs whether or not their links can be believed."""
    mark = self_mark(block)
    columns, gaps = aligned_columns(block, mark)
    cells: dict[tuple[str, str], str] = {}
    doubtful: dict[tuple[str, str], str] = {}
    for row in block.rows:
        sound, doubt, complaint = believed(row, columns, block, mark)
        cells |= sound
        doubtful |= doubt
        gaps += complaint
    links, contradictions = both_ends(cells, doubtful)
    states = {pair: cell for pair, cell in cells.items() if cell in P2P_CELLS}
    return Resolved(
        links=tuple(links),
        p2p=tuple((a, b, cell) for (a, b), cell in states.items()),
        gaps=(*gaps, *contradictions, *unlisted(block, columns)),
    )


def kind_of(block: Block) -> str:
    """What a block tells: `links`, `p2p` (peer access), or `other` (weights, hops, bandwidths, access)."""
    tokens = Counter[str]()
    for row in block.rows:
        for cell in row.cells if is_cell(row.cells[-1]) else row.cells[:-1]:  # the last one may be a piece
            tokens["links"] += split_kind(cell) is not None or UNHEARD.fullmatch(cell) is not None
            tokens["p2p"] += cell in P2P_CELLS
            tokens["other"] += split_kind(cell) is None and cell not in P2P_CELLS and cell not in SELF_CELLS
    if not (tokens["links"] or tokens["p2p"]):
        return "other" if tokens["other"] else "links"  # a lone device has a self cell only
    return "links" if tokens["links"] >= tokens["p2p"] else "p2p"


def self_mark(block: Block) -> str:
    """The cell by which this tool says self: `X`, `S`, `SELF` or `0`. Another one may be a piece of a cut cell."""
    marks = Counter(cell for row in block.rows for cell in row.cells if cell in SELF_CELLS)
    return marks.most_common(1)[0][0] if marks else "X"


def self_column(row: Row, mark: str) -> int | None:
    """Where the row's only self cell is; None if it has none or several."""
    return row.cells.index(mark) if row.cells.count(mark) == 1 else None


def aligned_columns(block: Block, mark: str) -> tuple[tuple[str | None, ...], list[str]]:
    """The columns' labels: the header's if the rows' self cells agree with it, else those that the self cells give."""
    seen = {row.label: column for row in block.rows if (column := self_column(row, mark)) is not None}
    header = dict(enumerate(block.columns))
    right = sum(header.get(column) == label for label, column in seen.items())
    if right * 2 >= len(seen) and len(set(block.columns)) == len(block.columns) and block.columns:
        sure = max((column for label, column in seen.items() if header.get(column) == label), default=-1)
        if block.titles and any(row.overfull for row in block.rows):
            columns = (*block.columns[: sure + 1], *[None] * (len(block.columns) - sure - 1))
            return columns, ["the header lacks a column of its rows: those without a row of their own are not read"]
        columns = without_cut_label(block)
        longer = not block.titles and any(row.tail.strip() for row in block.rows)
        return columns, [f"{block.columns[-1]}: the header may be cut there"] * (longer or columns[-1] is None)
    owners = Counter(seen.values())
    inferred: list[str | None] = [None] * max((len(row.cells) for row in block.rows), default=0)
    for label, column in seen.items():
        inferred[column] = label if owners[column] == 1 else None
    what = "the header does not match its rows" if block.columns else "the header is missing"
    nameless = inferred.count(None)
    return tuple(inferred), [f"{what}: columns are named by the rows' self cells, {nameless} stay without a name"]


def without_cut_label(block: Block) -> tuple[str | None, ...]:
    """The header's labels; its last one, without a title or a row, may be only the front of a label."""
    last = block.columns[-1]
    if block.titles or any(row.label == last for row in block.rows) or is_next(last, block.columns):
        return block.columns
    return (*block.columns[:-1], None)


def is_next(label: str, labels: Sequence[str]) -> bool:
    """Whether a number that counts NICs up comes next: then it is whole."""
    number = re.fullmatch(r"NIC(\d+)", label)
    return number is not None and labels.count(label) == 1 and f"NIC{int(number[1]) - 1}" in labels


def believed(
    row: Row, columns: Sequence[str | None], block: Block, mark: str
) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], str], list[str]]:
    """Cells of a row by (row, column): those to believe, those to believe only if the other end says the same, gaps."""
    at = self_column(row, mark)
    if at is None or at >= len(columns) or columns[at] != row.label:
        return {}, {}, [f"row {row.label} is cut or shifted: it is not read"]
    if len(row.cells) < len(columns) and block.titles and row.tail.strip() and not row.elided:
        return {}, {}, [f"row {row.label} has {len(row.cells)} cells for {len(columns)} columns: it is not read"]
    pairs = {(row.label, column): cell for column, cell in zip(columns, row.cells, strict=False) if column}
    gaps = [f"row {row.label} ends after {len(row.cells)} of {len(columns)} columns"] * (len(row.cells) < len(columns))
    last = columns[len(row.cells) - 1] if len(row.cells) <= len(columns) else None
    if last and last != row.label and may_be_cut(row, len(columns), block):
        return pairs, {(row.label, last): pairs.pop((row.label, last))}, gaps
    return pairs, {}, gaps


def may_be_cut(row: Row, width: int, block: Block) -> bool:
    """Whether the line may end inside the row's last cell: `NV1` may have been `NV18`."""
    cell = row.cells[-1]
    if row.tail.strip() or not (COUNTED.fullmatch(cell) or cell == "HCCS" or len(row.cells) < width):
        return False
    longest = max(len(other.cells) for other in block.rows)
    return len(row.cells) < longest or bool(block.titles) or row is block.rows[-1] or lines_are_cut(block)


def lines_are_cut(block: Block) -> bool:
    """Whether all lines may end at one width: rows without a column of their own, or pieces of cells."""
    without_column = block.columns and any(row.label not in block.columns for row in block.rows)
    return bool(without_column) or any(not is_cell(row.cells[-1]) for row in block.rows)


def both_ends(
    cells: Mapping[tuple[str, str], str], doubtful: Mapping[tuple[str, str], str]
) -> tuple[list[Link], list[str]]:
    """Links on which both ends agree or that only one end shows; a gap for each contradiction and each unknown."""
    links: list[Link] = []
    gaps: list[str] = []
    nameless: dict[str, list[str]] = {}
    done: set[frozenset[str]] = set()
    for (a, b), cell in [*cells.items(), *doubtful.items()]:
        if a == b or frozenset((a, b)) in done:
            continue
        done.add(frozenset((a, b)))
        back = cells.get((b, a))
        if (a, b) not in cells and back is None:
            gaps.append(f"{a}-{b}: the line ends in {cell}, which may be cut")
        elif (kind := split_kind(cell)) and (back in (None, cell)):
            links.append(Link(a, b, *kind))
        elif back and back != cell and (kind or split_kind(back)):
            gaps.append(f"{a}-{b}: {cell} from one end, {back} from the other")
        elif not kind and cell not in P2P_CELLS:
            nameless.setdefault(cell, []).append(f"{a}-{b}")
    gaps += [f"{', '.join(pairs)}: {cell} names no link" for cell, pairs in nameless.items()]
    return links, gaps


def unlisted(block: Block, columns: Iterable[str | None]) -> list[str]:
    """Columns that have no row of their own, and rows without a column."""
    rows = {row.label for row in block.rows}
    missing = [column for column in columns if column and column not in rows]
    gaps = [f"{', '.join(missing)}: in the header, but without a row"] if missing else []
    if nameless := [row.label for row in block.rows if block.columns and row.label not in columns]:
        gaps.append(f"{', '.join(nameless)}: with a row, but without a column")
    return gaps
