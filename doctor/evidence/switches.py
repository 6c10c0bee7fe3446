"""The switches above hosts, as `scontrol show topology`, topology.conf or topology.yaml tell them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from doctor.evidence.source import Parser, Source

DOCUMENT_LIMIT = 16 << 20
_MARK = re.compile(
    rb"^\s*(?:SwitchName=\S+\s.*(?:Nodes|Switches)=|BlockName=\S+\s.*Nodes=|- topology:)", re.MULTILINE | re.I
)


@dataclass(frozen=True)
class SwitchTree:
    """Host → the switches above it, outermost first and leaf last."""

    where: str
    paths: Mapping[str, tuple[str, ...]]


def sniff(sample: bytes, name: str) -> float:
    return 1.0 if _MARK.match(sample) else 0.9 * bool(_MARK.search(sample))


def parse(source: Source) -> Iterator[SwitchTree]:
    """The tree of one text; nothing where it names no host."""
    from launcher.slurm.topology import parse_topology
    from launcher.topology.switches import switch_paths

    if paths := switch_paths(parse_topology(source.text(DOCUMENT_LIMIT))):
        yield SwitchTree(source.name, paths)


PARSERS = (Parser("network switches", sniff, parse),)
