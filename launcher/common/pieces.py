"""Long texts of many senders over one channel that keeps short lines whole but mixes long ones, as srun's does."""

from __future__ import annotations

import re
from collections.abc import Iterator

MARK = "\x1e"  # starts our lines, so that banners and warnings between them are passed over
PIECE = 800  # characters; slurmstepd sends up to 1,024 bytes at once
_LINE = re.compile(rf"{MARK}(?P<sender>\S+) (?P<number>\d+) (?P<left>\d+) (?P<piece>.*)")


def cut(sender: str, number: int, text: str) -> Iterator[str]:
    """The lines that carry `text`, one line of ASCII: each names its sender, the text's number, and what is left."""
    pieces = [text[start : start + PIECE] for start in range(0, len(text), PIECE)] or [""]
    for index, piece in enumerate(pieces, 1):
        yield f"{MARK}{sender} {number} {len(pieces) - index} {piece}"


class Joiner:
    """Puts the texts together again."""

    def __init__(self) -> None:
        self._rest = ""
        self._parts: dict[tuple[str, int], list[str]] = {}

    def feed(self, data: str) -> Iterator[tuple[str, int, str]]:
        """Take the next part of the channel's output; gives sender, number and text of what is complete now."""
        *lines, self._rest = (self._rest + data).split("\n")
        for line in lines:
            found = _LINE.fullmatch(line.rstrip("\r"))
            if not found:
                continue
            key = found["sender"], int(found["number"])
            self._parts.setdefault(key, []).append(found["piece"])
            if found["left"] == "0":
                yield *key, "".join(self._parts.pop(key))
