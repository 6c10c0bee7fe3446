"""Network devices: the NIC legend of a matrix, `ibdev2netdev`, and their join."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from launcher.common.node_reports.infiniband import parse_ibdev2netdev
from launcher.topology.model import Nic

LEGEND = re.compile(  # a word with others behind it is what a later line wrote over the name
    r"(?<!\S)(NIC\d+)\s*[:=]\s*(?!NIC\d)([A-Za-z][^\s,;|]*)(?:(?<=\d)(?=[\s,;|])|(?=\W*$|\W+NIC\d+\s*[:=]))"
)


def read_legend(lines: Iterable[str]) -> dict[str, str]:
    """`NIC0: mlx5_0` -> label and kernel name."""
    return {match[1]: match[2] for line in lines for match in LEGEND.finditer(line)}


def read_ibdev2netdev(lines: Iterable[str]) -> list[Nic]:
    """One NIC for each line of `ibdev2netdev`.

    `Up` and `Down` tell of the IP interface only: an InfiniBand port without IP is `Down` and healthy, so `up` is True
    or unknown, never False.
    """
    found = parse_ibdev2netdev("\n".join(lines))
    return [Nic(name, name, netdev=netdev, up=True if up else None) for name, (netdev, up) in found.items()]


def joined(labels: Sequence[str], legend: Mapping[str, str], known: Sequence[Nic]) -> tuple[Nic, ...]:
    """NICs of a matrix with their kernel names and what is known of these, then the NICs that the matrix lacks."""
    facts = {nic.device: nic for nic in known}
    listed = []
    for label in labels:
        device = legend.get(label, None if re.fullmatch(r"NIC\d+", label) else label)
        listed.append(replace(facts.pop(device, Nic(label)), name=label, device=device))
    return (*listed, *facts.values())
