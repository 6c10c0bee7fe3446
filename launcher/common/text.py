"""Text of unknown origin, made safe for a terminal."""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def printable(text: str) -> str:
    """Colours are dropped, a carriage return is a new line, and other control characters are shown as escapes."""
    lines = _COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02x}", lines)
