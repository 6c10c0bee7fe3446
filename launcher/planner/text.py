"""Bytes and seconds for people. Bytes are decimal."""

from __future__ import annotations


def bytes_text(value: float) -> str:
    """`14.0 GB`."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def seconds_text(value: float) -> str:
    """`163 ms`, `1.09 s`, `2.5 min`, `6.1 h`."""
    for unit, size in (("h", 3600), ("min", 60)):
        if value >= 2 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
