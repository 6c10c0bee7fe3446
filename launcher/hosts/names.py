"""Sets of host names and of ranks: ranges written out, and names folded into ranges. Pure.

Sets are ClusterShell's. Lists are not: it sorts, drops repetitions and looks up `@groups`, while the order in which a
user names hosts is the order of the nodes, and a host that is named twice is a mistake to be shown.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence

from launcher.errors import InputError, suggestion

MOST_HOSTS = 1 << 16  # in one expression, as in Slurm
HELP = "for example gpu[01-16] or n1,n2"
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?:/([1-9]\d*))?)?")
_NAME = re.compile(r"[\w.():%][\w.():%-]*", re.ASCII)
_NUMBERED = re.compile(r"(.*?)(\d{1,18})", re.ASCII)


def expand(text: str, where: str = "", *, scontrol_order: bool = False) -> list[str]:
    """`gpu[01-03],login` -> the names, in the order written; a name that is written twice comes twice.

    With several brackets the last varies fastest, or, with `scontrol_order`, as `scontrol show hostnames` prints them:
    after the last the first varies fastest. Raises InputError.
    """
    names: list[str] = []
    for piece in filter(None, (piece.strip() for piece in _split(text, where))):
        names += _expand_piece(piece, where, scontrol_order)
        if len(names) > MOST_HOSTS:
            raise _error(text, f"more than {MOST_HOSTS} hosts", where)
    return names


def among(texts: Iterable[str], known: Sequence[str], where: str) -> list[str]:
    """The names in `texts`, as `expand` reads them. Raises InputError, with `where`, for one that is not known."""
    names = [name for text in texts for name in expand(text, where)]
    for name in names:
        if name not in known:
            raise InputError(f"no host {name!r}{suggestion(name, known)}", where=where, help="dlaunch nodes")
    return names


def fold(names: Iterable[str]) -> str:
    """The set of `names`, sorted and as short as it gets: `gpu[001-003,007],login`."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolver

    unique = sorted(set(names))
    try:
        return str(NodeSet.fromlist(unique, resolver=GroupResolver()))
    except NodeSetException:
        return ",".join(unique)


def fold_in_order(names: Sequence[str]) -> str:
    """`names` with their order and repetitions, as Slurm folds them: `expand` of the answer gives `names` again."""
    matches = [(name, _NUMBERED.fullmatch(name)) for name in names]
    pairs = [(match[1], match[2]) if match else (name, "") for name, match in matches]
    return ",".join(_fold_numbered(prefix, numbers) for prefix, numbers in _alike(pairs))


def fold_numbers(numbers: Iterable[int]) -> str:
    """The set of `numbers` as ranges: `0-62,64`."""
    from ClusterShell.RangeSet import RangeSet

    ranges = RangeSet()
    for number in numbers:
        ranges.add(number)
    return str(ranges)


def natural(text: str) -> list[tuple[int, int, str]]:
    """A sort key by which `n2` comes before `n10`."""
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in re.findall(r"\d+|\D+", text)]


def _split(text: str, where: str) -> list[str]:
    """The pieces between commas that are outside of brackets."""
    pieces, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise _error(text, "brackets do not pair", where)
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    if depth:
        raise _error(text, "a bracket is not closed", where)
    return pieces


def _expand_piece(piece: str, where: str, scontrol_order: bool) -> Iterator[str]:
    """`r[1-2]n[01-03]` -> its names."""
    literals = re.split(r"\[.*?\]", piece)
    if not _NAME.fullmatch("0".join(literals)):
        raise _error(piece, "not a host name", where)
    numbers = [_expand_ranges(ranges, where) for ranges in re.findall(r"\[(.*?)\]", piece)]
    if math.prod(map(len, numbers)) > MOST_HOSTS:
        raise _error(piece, f"more than {MOST_HOSTS} hosts", where)
    for choice in _choices(numbers, scontrol_order):
        yield literals[0] + "".join(map("".join, zip(choice, literals[1:], strict=True)))


def _choices(numbers: list[list[str]], scontrol_order: bool) -> Iterator[tuple[str, ...]]:
    """One number out of each list, in every way."""
    if not scontrol_order or not numbers:
        yield from itertools.product(*numbers)
        return
    *first, last = numbers
    for choice in itertools.product(*reversed(first)):
        yield from ((*reversed(choice), number) for number in last)


def _expand_ranges(text: str, where: str) -> list[str]:
    """`08-10,15` -> 08, 09, 10, 15; a step is written `0-8/2`. Numbers are as wide as the first of their range."""
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise _error(f"[{text}]", "not a range of numbers", where)
        low, high, step = match[1], match[2] or match[1], int(match[3] or 1)
        span = range(int(low), int(high) + 1, step)
        if not span:
            raise _error(f"[{text}]", f"{low} is after {high}", where)
        if len(span) > MOST_HOSTS:
            raise _error(f"[{text}]", f"more than {MOST_HOSTS} hosts", where)
        numbers += [str(number).zfill(len(low)) for number in span]
    return numbers


def _alike(pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Neighbours with one prefix -> the prefix and their numbers; a name without a number stands alone."""
    for (prefix, numbered), group in itertools.groupby(pairs, key=lambda pair: (pair[0], bool(pair[1]))):
        numbers = [number for _, number in group]
        if numbered:
            yield prefix, numbers
        else:
            yield from ((prefix, [number]) for number in numbers)


def _fold_numbered(prefix: str, numbers: Sequence[str]) -> str:
    if len(numbers) == 1:
        return prefix + numbers[0]
    runs: list[list[str]] = []
    for number in numbers:
        if runs and number == str(int(runs[-1][-1]) + 1).zfill(len(runs[-1][-1])):
            runs[-1].append(number)
        else:
            runs.append([number])
    return f"{prefix}[{','.join(run[0] if len(run) == 1 else f'{run[0]}-{run[-1]}' for run in runs)}]"


def _error(text: str, problem: str, where: str) -> InputError:
    shown = text if len(text) <= 60 else f"{text[:59]}…"
    return InputError(f"{shown!r}: {problem}", where=where, help=HELP)
