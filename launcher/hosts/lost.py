"""A host that could not be reached, in the place of its connection: whoever asks it hears why."""

from __future__ import annotations

from typing import NoReturn

from launcher.hosts.protocol import HostError


class LostHost:
    """Every use of it raises the error that its connection gave."""

    def __init__(self, error: HostError) -> None:
        self.name, self.error = error.host, error

    def run(self, *_: object, **__: object) -> NoReturn:
        raise self.error

    spawn = read = write = stream = run

    def close(self) -> None:
        """There is nothing to give back."""
