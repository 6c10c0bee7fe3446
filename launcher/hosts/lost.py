"""A host that could not be reached, in the place of its connection: whoever asks it hears why."""

from __future__ import annotations

from typing import NoReturn

from launcher.errors import CannotActError


class LostHost:
    """Every use of it raises the error that its connection gave."""

    def __init__(self, name: str, error: CannotActError) -> None:
        self.name, self.error = name, error

    def run(self, *_: object, **__: object) -> NoReturn:
        raise self.error

    spawn = read = write = stream = run

    def close(self) -> None:
        """There is nothing to give back."""
