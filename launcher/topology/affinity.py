"""CPU and NUMA columns behind a matrix's cells, and whether they tell of the hardware or only of a job's cpuset."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from launcher.topology.grammar import Row
from launcher.topology.model import Device, Link

CPU_LIST = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
CPU, NUMA, GPU_NUMA, NODE = "CPU Affinity", "NUMA Affinity", "GPU NUMA ID", "Node Affinity"


@dataclass(frozen=True)
class Affinity:
    """CPU list and NUMA node of one row; `blank` where the CPU column is there and empty, as under a foreign cpuset."""

    cpus: str | None = None
    numa: int | None = None
    numa_text: str | None = None
    blank: bool = False


def read_affinity(row: Row, titles: Sequence[tuple[str, int]]) -> Affinity:
    """Assign what follows the cells to the header's titles: by tabs where there are tabs, else from their number."""
    names = [name for name, _ in titles]
    if not names or not row.tail.strip() or not row.tail[0].isspace():  # glued to the cells, and so to each other
        return Affinity()
    fields = tabbed(row.tail, names) if "\t" in row.tail.strip(" ") else spaced(row, titles)
    numa = fields.get(NUMA) or fields.get(NODE)
    cpus = fields.get(CPU)
    return Affinity(
        cpus=cpus if cpus and CPU_LIST.fullmatch(cpus) else None,
        numa=int(numa) if numa and numa.isdecimal() else None,
        numa_text=numa,
        blank=CPU in names and cpus == "",
    )


def tabbed(tail: str, names: Sequence[str]) -> dict[str, str]:
    """Fields of a tail with tabs. Drivers print an empty field before the last column, and some before NUMA's."""
    parts = [part.strip() for part in re.split(r"\t", tail.strip(" "))]
    parts = parts[1:] if parts and not parts[0] else parts
    filled = [part for part in parts if part]
    if len(filled) == len(names):
        return dict(zip(names, filled, strict=True))
    if names[0] == CPU and parts and not parts[0] and len(filled) == len(names) - 1:
        return {CPU: "", **dict(zip(names[1:], filled, strict=True))}
    return dict(zip(names, parts, strict=False))


def spaced(row: Row, titles: Sequence[tuple[str, int]]) -> dict[str, str]:
    """Fields of a tail with blanks: as many as titles, or without the CPU list if the first is no list of CPUs.

    A lone number may be a CPU or a NUMA node: it is neither, then.
    """
    names = [name for name, _ in titles]
    filled = row.tail.split()
    if len(filled) >= len(names):
        return dict(zip(names, filled, strict=False))
    if names[-1] == GPU_NUMA and filled[-1] == "N/A" and len(filled) == 2 and len(names) == 3:
        return {CPU: filled[0]} if not filled[0].isdigit() else {CPU: ""}
    return {names[0]: filled[0]} if not filled[0].isdigit() and names[0] == CPU else {}


def without_cpuset(
    devices: Sequence[Device], links: Sequence[Link], blanks: bool
) -> tuple[tuple[Device, ...], list[str]]:
    """Drop CPU lists that are only a job's cpuset: some are empty, or devices on two sockets show the same list."""
    cpus = {device.name: device.cpus for device in devices}
    across = [link for link in links if link.kind in ("SYS", "SOC")]
    shared = next((link for link in across if cpus.get(link.a) and cpus.get(link.a) == cpus.get(link.b)), None)
    if not (blanks or shared):
        return tuple(devices), []
    why = f"{shared} crosses sockets, yet both show CPUs {cpus[shared.a]}" if shared else "it is empty for some devices"
    dropped = tuple(replace(device, cpus=None) for device in devices)
    return dropped, [f"CPU affinity: {why}; it shows the cpuset of a job, not of the hardware"]
