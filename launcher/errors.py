"""Errors that a person sees, as one line and without a traceback.

DlaunchError                exit status 1
├── InputError              exit status 2   usage, a bad file, an unknown job
└── CannotActError          exit status 3   could not look or act: unreachable, no permission
"""

from __future__ import annotations

from collections.abc import Iterable


class DlaunchError(Exception):
    """Base of all errors that the command line prints; `help` is the command or change that helps."""

    exit_status = 1

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help

    def __str__(self) -> str:
        return f"{self.message} ({self.help})" if self.help else self.message


class InputError(DlaunchError):
    """A wrong value; `where` is `FILE:LINE: field` or the option that holds it."""

    exit_status = 2

    def __init__(self, message: str, *, where: str = "", help: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message, help=help)
        self.where = where


class CannotActError(DlaunchError):
    """The hosts, files or programs that were needed could not be reached."""

    exit_status = 3


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'nodes'?` for a near miss, else nothing."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
