"""What our node side tells of its own blind spots: gaps.json of a bundle."""

from __future__ import annotations

import json
from collections.abc import Iterator

from doctor.evidence.source import Gap, Parser, Source


def sniff(sample: bytes, name: str) -> float:
    return 1.0 if sample.startswith(b'{"dlaunch_gaps"') else 0.0


def parse(source: Source) -> Iterator[object]:
    """No records: each entry becomes a gap; a missing dump or host makes a healthy answer a guess."""
    for where, why in json.loads(source.read(1 << 24))["dlaunch_gaps"]:
        source.gaps.append(Gap(str(where)[:200], str(why)[:300], blinding=str(where).startswith(("dump of", "host "))))
    yield from ()


PARSERS = (Parser("gaps", sniff, parse),)
