"""Kinds of link between devices, what they are worth, and which cells of a printed matrix name one."""

from __future__ import annotations

import re

SELF_CELLS = frozenset({"X", "S", "SELF", "0"})
UNKNOWN_CELLS = frozenset({"NA", "N/A", "XXXX", "U", "UNKNOWN", "-", "--", "?"})
P2P_CELLS = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})

# GB/s per direction of the path: relative weights for placement until `dlaunch bench comm` has measured better ones.
# A name in COUNTED is followed by a number of lanes, and its weight is for each of them.
PATH_GBPS = {"PIX": 24.0, "PXB": 20.0, "PHB": 18.0, "NODE": 14.0, "SYS": 9.0, "SOC": 6.0}
DIRECT_GBPS = {
    "MX": 100.0,
    "HCCS": 28.0,
    "HCCS_SW": 28.0,
    "SIO": 28.0,
    "XGMI": 50.0,
    "MDF": 200.0,
    "XL*": 6.6,
    "UB": 28.0,
    "MLK": 25.0,
}  # Ascend's Unified Bus, Cambricon's MLULink
OTHER_GBPS = {"PCIE": 14.0, "ETH": 6.0}
COUNTED_GBPS = {"NV": 20.0, "XL": 6.6, "MT": 28.0}  # Moore Threads' MTLink
UNKNOWN_GBPS = PATH_GBPS["SYS"]

COUNTED = re.compile(rf"({'|'.join(COUNTED_GBPS)})(\d{{1,3}})")
PLAIN_KINDS = frozenset({*PATH_GBPS, *DIRECT_GBPS, *OTHER_GBPS})


def split_kind(cell: str) -> tuple[str, int] | None:
    """`NV18` -> (`NV`, 18), `PIX` -> (`PIX`, 1); None if the cell names no known link."""
    if match := COUNTED.fullmatch(cell):
        return (match[1], int(match[2])) if int(match[2]) else None
    return (cell, 1) if cell in PLAIN_KINDS else None


def is_direct(kind: str) -> bool:
    """Whether devices joined by `kind` reach each other without PCIe: NVLink or its like."""
    return kind in COUNTED_GBPS or kind in DIRECT_GBPS


def gbps(kind: str, count: int) -> float:
    """Weight of a link in GB/s; a kind that nobody knows is worth no more than the worst known path."""
    if kind in COUNTED_GBPS:
        return COUNTED_GBPS[kind] * count
    return PATH_GBPS.get(kind) or DIRECT_GBPS.get(kind) or OTHER_GBPS.get(kind) or UNKNOWN_GBPS


def spell(kind: str, count: int) -> str:
    """The kind as the vendor's tool prints it: `NV18`, `PIX`."""
    return f"{kind}{count}" if kind in COUNTED_GBPS else kind
