"""Evidence: parsers from bytes to typed, frozen records with their place. Standard library only; they only read.

To add a parser: write a module in this package that defines its record types (frozen dataclasses that can be pickled)
and a tuple `PARSERS` of `Parser(name, sniff, parse)` (see `source.Parser`); it is found by that name, nothing else is
to be edited. Text parsers answer a small confidence for anything that may hold their lines (`looks_like_text`) and go
through `source.chunks()` (bytes, fast) or `source.lines()`; both are bounded and survive NUL bytes and sparse files.
Parsers of whole files answer 1.0 when the content is surely theirs. Rules then ask `evidence.of(RecordType)`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache

from doctor.evidence.source import Gap, Parser, Source, UnreadableError
from doctor.evidence.store import EvidenceSet

__all__ = ["EvidenceSet", "Gap", "Parser", "Source", "UnreadableError", "parsers"]


@cache
def parsers() -> Sequence[Parser]:
    """All parsers of the modules of this package, by name."""
    modules = (importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    return sorted((one for module in modules for one in getattr(module, "PARSERS", ())), key=lambda one: one.name)
