"""The printed matrices of all vendors, read into blocks of columns and rows; nothing is judged here.

One grammar serves `nvidia-smi topo -m` and `-p2p` of every driver, `rocm-smi`, `amd-smi`, `xpu-smi`, `npu-smi` and
`mx-smi`: a header of labels, perhaps titles of CPU and NUMA columns, then rows of a label and cells.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from launcher.topology.links import COUNTED_GBPS, P2P_CELLS, PLAIN_KINDS, SELF_CELLS, UNKNOWN_CELLS, split_kind

BDF = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
DEVICE = re.compile(rf"(?!CPU)[A-Z]{{1,2}}[PLC]U\d+|GPU \d+/\d+|Device \d+|Phy-ID\d+|{BDF}")
NIC = re.compile(r"NIC\d+|(?:mlx\d|hfi\d|xsc|cxi|efa|hns|erdma|mana|ionic|qedr|bnxt_re|irdma|siw|rxe)\w*\d")
GLUED_LABELS = re.compile(r"(?:[A-Z]{1,2}[PLC]U|NIC)\d+|[a-z]+\d_\d+|[a-z]+_?[a-z]*\d+")
TITLE = re.compile(r"(?:CPU|NUMA|Node)\s+Affinity|GPU\s+NUMA\s+ID")
CUT_TITLE = re.compile(r"(?<!\S)(?:(CPU|NUMA|Node)(?:\s+A\w*)?|GPU(?:\s+N\w*(?:\s+I\w*)?)?)\s*$")
TOKEN = re.compile(r"GPU \d+/\d+|Device \d+(?!\S)|\S+")
NAME = re.compile(r"[A-Za-z][\w.\-]*")
AFFINITY = re.compile(r"\d[\d,\-]*|N/A")
OTHER_CELLS = re.compile(r"ENABLED|DISABLED|True|False|\d+(?:-\d+)?|\d+(?:,\d+)+")
_COUNTED_CELL = rf"(?:{'|'.join(COUNTED_GBPS)})\d+"
_PLAIN_CELL = "|".join(sorted((re.escape(kind) for kind in PLAIN_KINDS), key=len, reverse=True))
GLUED_CELLS = re.compile(rf"(?:{_COUNTED_CELL}|{_PLAIN_CELL}|X)")
ELLIPSIS = frozenset({"...", "…", "⋯"})
MORE_TAIL = re.compile(r"[\s\d,\-]*\d(?:\s+N/A)?\s*|\s*N/A\s*")
LEGEND_START = re.compile(r"^\s*(?:NIC )?Legend\b", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """One line of a matrix: `raw` from its label on, the cells as printed, and what follows them."""

    label: str
    raw: str
    cells: tuple[str, ...]
    tail: str

    @property
    def elided(self) -> bool:
        """Whether someone left out cells and wrote an ellipsis for them."""
        return bool(ELLIPSIS.intersection(self.tail.split()[:1]))

    @property
    def overfull(self) -> bool:
        """Whether more cells follow than its header has columns."""
        return split_kind((self.tail.split() or [""])[0]) is not None


@dataclass
class Block:
    """One matrix: labels of the columns, titles with their position in the header, rows."""

    columns: tuple[str, ...] = ()
    titles: tuple[tuple[str, int], ...] = ()
    rows: list[Row] = field(default_factory=list)


def is_label(token: str) -> bool:
    return bool(DEVICE.fullmatch(token) or NIC.fullmatch(token))


def is_cell(token: str) -> bool:
    known = token in SELF_CELLS or token in UNKNOWN_CELLS or token in P2P_CELLS
    return known or split_kind(token) is not None or bool(OTHER_CELLS.fullmatch(token))


def read_blocks(lines: Sequence[str]) -> list[Block]:
    """All matrices of a text, in order."""
    return _Reader(odd_labels(lines)).read(lines)


def odd_labels(lines: Sequence[str]) -> frozenset[str]:
    """Labels of no known pattern, as renamed NICs have: first on a line that goes on with cells, one of them self.

    Their small letters tell them from the rest of a wrapped cell; the first line may have lost its front.
    """
    found = set()
    for line in lines[1:]:
        label, *rest = TOKEN.findall(line) or [""]
        if NAME.fullmatch(label) and re.search("[a-z]", label) and "X" in rest and all(map(is_cell, rest[:3])):
            found.add(label)
    return frozenset(found)


class _Reader:
    """Goes once over the lines, holding the header that waits for rows and the block that is being filled."""

    def __init__(self, odd: frozenset[str]) -> None:
        self.odd = odd
        self.blocks: list[Block] = []
        self.header: tuple[str, Block] | None = None  # raw text and what it says
        self.block: Block | None = None
        self.open_row = False  # the line before was a row: a line without a label may go on with it
        self.open_header = False

    def read(self, lines: Sequence[str]) -> list[Block]:
        for line in lines:
            if LEGEND_START.match(line):
                self.block = self.header = None
                self.open_row = self.open_header = False
            if line.strip():
                self.take(line)
        return self.blocks

    def take(self, line: str) -> None:
        columns = self.block.columns if self.block else self.header[1].columns if self.header else ()
        titles = bool(self.block.titles if self.block else self.header and self.header[1].titles)
        if row := read_row(line, len(columns), titles, self.odd.union(columns)):
            self.add(row)
            self.open_row, self.open_header = True, False
        elif header := read_header(line, self.odd):
            self.header = self.merged(line, header)
            self.block = None
            self.open_row, self.open_header = False, True
        else:
            self.open_row = self.open_row and self.go_on(line)
            self.open_header = self.open_header and self.finish_header(line)

    def add(self, row: Row) -> None:
        if self.block is None or any(other.label == row.label for other in self.block.rows):
            known = self.header[1] if self.header else self.block or Block()
            self.block = Block(known.columns, known.titles)
            self.blocks.append(self.block)
        self.block.rows.append(row)

    def merged(self, line: str, header: Block) -> tuple[str, Block]:
        """A header that follows a header at once goes on with it, unless it says the same labels again."""
        if self.open_header and self.header and not set(self.header[1].columns) & set(header.columns):
            return self.grown_header(line) or (line, header)
        return line, header

    def grown_header(self, line: str) -> tuple[str, Block] | None:
        """The waiting header with the next line of it, where a terminal or a mail wrapped it; None if it is none."""
        assert self.header
        joins = [self.header[0] + line, f"{self.header[0]} {line.strip()}"]
        choices = [(join, found) for join in joins if (found := read_header(join, self.odd))]
        best = min(choices, key=lambda choice: self.strange(choice[1]), default=None)
        return best if best and self.strange(best[1]) <= self.strange(self.header[1]) else None

    def strange(self, header: Block) -> int:
        """How many labels of a header look like none."""
        return sum(not is_label(label) and label not in self.odd for label in header.columns)

    def finish_header(self, line: str) -> bool:
        """A wrapped header may end in a line that has no whole label, only the rest of one, or titles."""
        grown = self.grown_header(line)
        self.header = grown or self.header
        return grown is not None

    def go_on(self, line: str) -> bool:
        """Join a wrapped row's next line to it; False when the line is none of its."""
        assert self.block
        row, width, titles = self.block.rows[-1], len(self.block.columns), bool(self.block.titles)
        if len(row.cells) >= width > 0 and row.tail.strip() and MORE_TAIL.fullmatch(line):
            self.block.rows[-1] = with_more_tail(row, line, len(self.block.titles))
            return True
        complete = len(row.cells) >= width > 0 and (not titles or row.tail.strip())
        if complete or not all(is_cell(token) or AFFINITY.fullmatch(token) for token in line.split()[1:]):
            return False
        grown = [
            read_row(join, width, titles, frozenset({row.label})) for join in (row.raw + line, f"{row.raw} {line}")
        ]
        better = [new for new in grown if new and _invalid(new) <= _invalid(row) and len(new.raw) > len(row.raw)]
        if not better:
            return False
        chosen = max(better, key=lambda new: (-_invalid(new), len(new.cells)))
        if len(better) == 2 and better[0].cells != better[1].cells and _invalid(better[0]) == _invalid(better[1]):
            chosen = replace(better[0], cells=(*row.cells[:-1], "?", *better[0].cells[len(row.cells) :]))
        self.block.rows[-1] = chosen
        return True


def with_more_tail(row: Row, line: str, titles: int) -> Row:
    """A row whose CPU and NUMA columns go on in the next line; unknown where nothing tells whether a list was cut."""
    joins = [row.tail + line, f"{row.tail} {line}"]
    if line[0] in ",-" or row.raw[-1] in ",-":
        joins = joins[:1]
    fields = {tuple(join.split()): join for join in joins if len(join.split()) <= titles}
    if not fields:
        return row
    return replace(row, raw=row.raw + line, tail=next(iter(fields.values())) if len(fields) == 1 else "?")


def _invalid(row: Row) -> int:
    return sum(not is_cell(cell) for cell in row.cells)


def read_header(line: str, odd: frozenset[str]) -> Block | None:
    """Columns and titles of a line, if it can be a header: labels of devices and NICs up to its end, and no cells."""
    titles = tuple((" ".join(match[0].split()), match.start()) for match in TITLE.finditer(line))
    text, cut_titles = without_cut_titles(TITLE.sub(lambda match: " " * len(match[0]), line))
    titles += cut_titles
    tokens = [part for match in TOKEN.finditer(text) for part in unglue(match[0], odd)]
    start = next((i for i, token in enumerate(tokens) if is_label(token) or token in odd), len(tokens))
    labels = tokens[start:]
    if not any(DEVICE.fullmatch(label) for label in labels) and not (titles and labels):
        return None
    if not all(is_label(label) or NAME.fullmatch(label) for label in labels) or any(split_kind(t) for t in labels):
        return None
    return Block(tuple(labels), titles)


def without_cut_titles(text: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    """A header without the titles at its end that are cut or shortened (`NUMA`), and those of them that are certain."""
    found: list[tuple[str, int]] = []
    while match := CUT_TITLE.search(text):
        text = text[: match.start()]
        found += [(f"{match[1]} Affinity", match.start())] if match[1] else []
    return text, tuple(reversed(found))


def unglue(token: str, odd: frozenset[str]) -> list[str]:
    """`GPU0GPU1mlx5_0` -> its labels; any other token is itself."""
    if is_label(token) or token in odd:
        return [token]
    parts = GLUED_LABELS.findall(token)
    return parts if len(parts) > 1 and "".join(parts) == token else [token]


def read_row(line: str, width: int, titles: bool, known: frozenset[str]) -> Row | None:
    """The row in `line`, behind whatever a log put before it: a label, then cells; None if there is none.

    At most `width` cells are read, all there are when `width` is 0. Where the header has titles, the first token that
    can only be a CPU or NUMA list ends them.
    """
    tokens = list(TOKEN.finditer(line))
    for at, match in enumerate(tokens[:-1]):
        label = match[0]
        if (is_label(label) or label in known) and label not in SELF_CELLS:
            cells, end = read_cells(tokens[at + 1 :], width, titles)
            known_cells = sum(map(is_cell, cells)) * 2 >= len(cells) and is_cell(cells[0]) if cells else False
            if known_cells or (label in known and is_whole(cells, width)):
                return Row(label, line[match.start() :], tuple(cells), line[end:])
    return None


def is_whole(cells: Sequence[str], width: int) -> bool:
    """Whether cells fill a known header with one self cell: then the others may be of kinds that nobody knows."""
    selves = sum(cell in SELF_CELLS for cell in cells)
    numbers = sum(cell.isdigit() for cell in cells)
    return 1 < len(cells) == width and selves == 1 and numbers <= 1


def read_cells(tokens: Sequence[re.Match[str]], width: int, titles: bool) -> tuple[list[str], int]:
    """The cells at the front of `tokens`, and where in the line they end."""
    cells: list[str] = []
    end = tokens[0].start() if tokens else 0
    for match in tokens:
        if (width and len(cells) >= width) or match[0] in ELLIPSIS:
            break
        if AFFINITY.fullmatch(match[0]) and (titles or not (width or match[0] == "0")):
            break
        cells += split_glued(match[0])
        end = match.end()
    return (cells[:width] if width else cells), end


def split_glued(token: str) -> list[str]:
    """`PHBSYSNV4` -> its kinds, where blanks were lost; a count that may belong to what follows is unknown."""
    if is_cell(token):
        return [token]
    parts = GLUED_CELLS.findall(token)
    if len(parts) < 2 or not token.startswith("".join(parts)):
        return [token]
    rest = token[len("".join(parts)) :]
    return parts if not rest else [*parts[:-1], "?" if parts[-1][-1:].isdigit() else parts[-1]]
