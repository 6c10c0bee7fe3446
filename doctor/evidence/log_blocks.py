"""A log in blocks of whole lines: what is looked at by the block costs a fraction of what is looked at by the line."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.evidence.source import LINE_LIMIT, Source

BLOCK_BYTES = 1 << 18  # what is split into lines at once stays in the processor's caches


def as_bytes(text: str) -> bytes:
    """The bytes of a text from `text_blocks`."""
    return text.encode("latin-1")


def decoded(text: str) -> str:
    """A text from `text_blocks` as what its bytes say in UTF-8."""
    return text if text.isascii() else as_bytes(text).decode(errors="replace")


def text_blocks(source: Source) -> Iterator[str]:
    """Blocks of whole lines, each ending in a newline, byte by byte as Latin-1: text is searched faster than bytes are.

    A line is cut at 64 KiB, and a gap says so.
    """
    tail = b""
    cut = False  # inside a line whose first part was already given
    for chunk in source.chunks():
        data = tail + chunk
        end = data.rfind(b"\n") + 1
        whole, tail = data[:end], data[end:]
        if cut and end:
            whole, cut = whole[whole.index(b"\n") + 1 :], False
        if len(tail) > LINE_LIMIT:
            if not cut:
                source.note(f"a line is longer than {LINE_LIMIT:,} bytes: only its start was read")
                whole += tail[:LINE_LIMIT] + b"\n"
            tail, cut = b"", True
        yield from _parts(whole.decode("latin-1"))
    if tail and not cut:
        yield (tail + b"\n").decode("latin-1")


def _parts(whole: str) -> Iterator[str]:
    start = 0
    while start < len(whole):
        end = whole.rfind("\n", start, start + BLOCK_BYTES) + 1 or whole.index("\n", start) + 1
        yield whole[start:end]
        start = end
