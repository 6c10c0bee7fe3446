"""Signatures: which lines of NCCL, RCCL, torch, launchers and libraries say what, as data, by family.

A row is (kind, word, pattern). The word is a plain piece of text that every such line holds, so that most lines are
passed over without a regular expression; the pattern is searched in the line without its prefix. Several rows may share
a kind: texts of different versions. The meaning of a kind stands in `doctor.rules.meanings`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby

from doctor.evidence.signatures import bootstrap, cascade, device, library, network, program

Row = tuple[str, str, str]


@dataclass(frozen=True)
class Signature:
    kind: str
    word: str
    pattern: re.Pattern[str]


@cache
def signatures() -> tuple[Signature, ...]:
    """All signatures; of two that match a line, the earlier one names it."""
    rows: list[Row] = []
    for family in (network, bootstrap, device, library, program, cascade):
        rows += family.ROWS
    return tuple(Signature(kind, word, re.compile(pattern)) for kind, word, pattern in rows)


@cache
def word_filter() -> re.Pattern[str]:
    """Matches every line that may hold a signature: one of the words."""
    return any_of({signature.word for signature in signatures()})


def any_of(words: Collection[str]) -> re.Pattern[str]:
    """Matches where one of the words stands. Common beginnings are shared: Python tries alternatives one by one."""
    needed = [word for word in words if not any(other != word and other in word for other in words)]
    return re.compile(_branches(sorted(needed)))


def _branches(words: Sequence[str]) -> str:
    """A pattern for sorted words, none of which begins another."""
    if len(words) == 1:
        return re.escape(words[0])
    parts = [
        re.escape(first) + _branches([word[1:] for word in group])
        for first, group in groupby(words, key=lambda word: word[:1])
    ]
    return parts[0] if len(parts) == 1 else "(?:" + "|".join(parts) + ")"


@lru_cache(4_096)
def find(text: str) -> tuple[str, Mapping[str, str]] | None:
    """(kind, fields) of the first signature that a line matches."""
    for signature in signatures():
        if signature.word in text and (match := signature.pattern.search(text)):
            return signature.kind, {name: value for name, value in match.groupdict().items() if value}
    return None
