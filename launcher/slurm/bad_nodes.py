"""Nodes that failed us, each with a reason and an expiry: later jobs exclude them until it has passed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from launcher.common.fields import from_fields
from launcher.common.paths import home
from launcher.hosts.local import LocalHost

EXPIRY_S = 24 * 3600.0


@dataclass(frozen=True)
class BadNode:
    """Why a node is left out, and until when (seconds since the epoch)."""

    reason: str
    until: float


def still_bad(nodes: Mapping[str, BadNode], now: float) -> dict[str, BadNode]:
    return {name: bad for name, bad in nodes.items() if bad.until > now}


def bad_nodes_file(cluster: str) -> Path:
    return home() / "bad-nodes" / f"{cluster}.json"


def read_bad_nodes(cluster: str, now: float) -> dict[str, BadNode]:
    """Those that have not expired; a file that is missing or damaged names none."""
    with suppress(OSError, ValueError, TypeError):
        document = json.loads(bad_nodes_file(cluster).read_text())
        return still_bad({name: from_fields(BadNode, entry) for name, entry in document.items()}, now)
    return {}


def add_bad_nodes(cluster: str, reasons: Mapping[str, str], now: float) -> None:
    """Leave these nodes out for a day from now."""
    if not reasons:
        return
    bad = read_bad_nodes(cluster, now) | {name: BadNode(reason, now + EXPIRY_S) for name, reason in reasons.items()}
    text = json.dumps({name: asdict(entry) for name, entry in bad.items()})
    LocalHost().write(str(bad_nodes_file(cluster)), text.encode())
