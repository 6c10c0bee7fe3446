"""A machine of our own and the matrix that a vendor's tool would print of it, for tests that know the truth."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS")
COUNTS = (1, 2, 3, 4, 6, 12, 18)


@dataclass(frozen=True)
class Machine:
    """Labels and, for each pair, the kind as printed."""

    devices: tuple[str, ...]
    nics: tuple[str, ...]
    kinds: dict[frozenset[str], str] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.devices, *self.nics)

    def cell(self, a: str, b: str) -> str:
        return "X" if a == b else self.kinds[frozenset((a, b))]


def random_machine(seed: int, devices: int, nics: int) -> Machine:
    """Devices joined by a few kinds of NVLink and PCIe paths, NICs by PCIe paths."""
    rng = random.Random(seed)
    names = tuple(f"GPU{i}" for i in range(devices))
    ports = tuple(rng.choice([f"NIC{i}", f"mlx5_{i}", f"mlx5_bond_{i}"]) for i in range(nics))
    palette = [f"NV{rng.choice(COUNTS)}", f"NV{rng.choice(COUNTS)}", *rng.sample(PATHS, 3)]
    labels = (*names, *ports)
    kinds = {}
    for i, a in enumerate(labels):
        for b in labels[i + 1 :]:
            kinds[frozenset((a, b))] = rng.choice(palette if b in names else PATHS)
    return Machine(names, ports, kinds)


TITLES = {
    "new": ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID"),
    "middle": ("CPU Affinity", "NUMA Affinity"),
    "old": ("CPU Affinity",),
}


def rows_of(machine: Machine, era: str, columns: Sequence[str], rows: Sequence[str]) -> list[list[str]]:
    """Cells of header and rows, titles as one cell each."""
    header = ["", *columns, *TITLES[era]]
    lines = [header]
    for label in rows:
        at = machine.labels.index(label)
        tail = [f"{at * 8}-{at * 8 + 7},{at * 8 + 500}-{at * 8 + 507}", str(at % 2), "N/A"][: len(TITLES[era])]
        lines.append([label, *(machine.cell(label, c) for c in columns), *(tail if label in machine.devices else [])])
    return lines


def tabbed(lines: Sequence[Sequence[str]]) -> str:
    """As drivers print it: tabs, `X` between blanks, an empty field before the third title's value."""
    text = []
    for cells in lines:
        shown = [" X " if cell == "X" else cell for cell in cells]
        if shown[-1:] == ["N/A"] and len(cells) > 3:
            shown.insert(len(shown) - 1, "")
        text.append("\t".join(shown))
    return "\n".join(text) + "\n"


def spaced(lines: Sequence[Sequence[str]], gap: int = 2) -> str:
    """Tabs expanded to columns."""
    widths = [max(len(cells[i]) for cells in lines if i < len(cells)) + gap for i in range(max(map(len, lines)))]
    return "".join("".join(c.ljust(w) for c, w in zip(cells, widths, strict=False)).rstrip() + "\n" for cells in lines)


LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
