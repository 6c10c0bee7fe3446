"""One line of the table of codes."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """`cause`: what is wrong, and what shows it. `fix`: what to do."""

    cause: str
    fix: str
