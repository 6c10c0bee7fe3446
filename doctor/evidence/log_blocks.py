"""A log in blocks of whole lines: what is looked at by the block costs a fraction of what is looked at by the line."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.evidence.source import Source

BLOCK_BYTES = 1 << 18  # what is split into lines at once stays in the processor's caches


def as_bytes(text: str) -> bytes:
    """The bytes of a text from `text_blocks`."""
    return text.encode("latin-1")


def decoded(text: str) -> str:
    """A text from `text_blocks` as what its bytes say in UTF-8."""
    return text if text.isascii() else as_bytes(text).decode(errors="replace")


def text_blocks(source: Source) -> Iterator[str]:
    """Pieces of whole lines, byte by byte as Latin-1: text is searched faster than bytes are."""
    for block in source.blocks():
        yield from _parts(block.decode("latin-1"))


def _parts(whole: str) -> Iterator[str]:
    start = 0
    while start < len(whole):
        end = whole.rfind("\n", start, start + BLOCK_BYTES) + 1 or whole.index("\n", start) + 1
        yield whole[start:end]
        start = end
