"""The new bytes of a file that grows."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_MOST_BYTES = 262_144  # of a log read in one look; a flood is skipped up to its newest part


class Tail:
    """The new bytes of a growing file, read without keeping it open; a file that shrank is read anew."""

    def __init__(self, path: Path, most: int = _MOST_BYTES) -> None:
        self.path = path
        self._name = str(path)
        self.size = 0
        self._offset = 0
        self._most = most

    def measure(self) -> int:
        """The file's size now; zero while there is no file."""
        with suppress(OSError):
            self.size = os.stat(self._name).st_size  # noqa: PTH116 (a Path costs thousands of looks a second)
        return self.size

    def new(self) -> bytes:
        """The bytes since the last call, at most the newest `most`; none while there is no file."""
        size = self.measure()
        if size == self._offset:
            return b""
        start = max(0 if size < self._offset else self._offset, size - self._most)
        try:
            descriptor = os.open(self._name, os.O_RDONLY)
        except OSError:
            return b""
        try:
            data = os.pread(descriptor, self._most, start)
        finally:
            os.close(descriptor)
        self._offset = start + len(data)
        return data
