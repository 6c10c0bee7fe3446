"""Host files of DeepSpeed, MPI and PBS -> an inventory. Pure but for reading the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from launcher.errors import InputError
from launcher.hosts.names import expand, fold_in_order
from launcher.inventory import parse_inventory
from launcher.inventory_file import read_inventory

_LINE = re.compile(
    r"(?:(?P<user>[\w.-]+)@)?(?P<host>[\w.-]+)(?::(?P<count>\d+))?(?P<options>(?:\s+[\w-]+\s*=\s*\S+)*)", re.ASCII
)
_OPTION = re.compile(r"([\w-]+)\s*=\s*(\S+)")
_HELP = "for example: worker-1 slots=8"


@dataclass(frozen=True)
class Slots:
    """One host of a file: how many ranks it takes, and the line that said so (from 1)."""

    count: int
    line: int
    user: str | None = None
    counted: bool = False  # the line gave a number; else it may come once for each slot


def parse_hostfile(text: str, where: str) -> dict[str, Slots]:
    """`worker-1 slots=8` (DeepSpeed, Open MPI), `n1:8` (MPICH) or one line for each slot (PBS), in the file's order.

    Raises InputError naming file and line.
    """
    found: dict[str, Slots] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        match = _LINE.fullmatch(content)
        if not match:
            raise InputError(f"not a host and its slots: {content[:60]!r}", where=f"{where}:{number}", help=_HELP)
        slots = _slots(match, f"{where}:{number}", number)
        before = found.get(match["host"])
        if before is not None and (slots.counted or before.counted):
            raise InputError(f"{match['host']} is in line {before.line} already", where=f"{where}:{number}")
        if before is not None:
            slots = Slots(before.count + 1, before.line, slots.user)
        found[match["host"]] = slots
    if not found:
        raise InputError("no host in it", where=where, help=_HELP)
    return found


def _slots(match: re.Match[str], where: str, line: int) -> Slots:
    options = dict(_OPTION.findall(match["options"] or ""))
    count = options.get("slots", match["count"])
    if count is None:
        return Slots(1, line, match["user"])
    if not count.isdigit() or not int(count):
        raise InputError(f"{count!r} is no number of slots", where=f"{where}: slots", help=_HELP)
    return Slots(int(count), line, match["user"], counted=True)


def inventory_text(hosts: Mapping[str, Slots], cluster: str, where: str) -> str:
    """An inventory with these hosts as a cluster of kind ssh. Raises InputError where hosts differ in their slots."""
    (first, measure), *others = hosts.items()
    for name, slots in others:
        if slots.count != measure.count:
            raise InputError(
                f"{name} has {slots.count} slots and {first} {measure.count}: a job starts as many ranks on each host",
                where=f"{where}:{slots.line}: slots",
                help="a file for each kind of host",
            )
    entry: dict[str, Any] = {"kind": "ssh", "hosts": _entries(hosts), "nproc_per_node": measure.count}
    text = yaml.safe_dump({"default": cluster, "clusters": {cluster: entry}}, sort_keys=False)
    parse_inventory(text, where)
    return text


def _entries(hosts: Mapping[str, Slots]) -> list[Any]:
    if any(slots.user for slots in hosts.values()):
        return [{"name": name, **({"user": slots.user} if slots.user else {})} for name, slots in hosts.items()]
    folded = fold_in_order(list(hosts))
    return [folded] if expand(folded) == list(hosts) and "," not in folded else list(hosts)


def import_hostfile(path: Path, cluster: str) -> tuple[dict[str, Slots], str]:
    """The hosts of a file and the inventory that they make. Raises InputError."""
    hosts = parse_hostfile(read_inventory(path), str(path))
    return hosts, inventory_text(hosts, cluster, str(path))
