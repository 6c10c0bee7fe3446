"""`nvidia-smi --query-gpu=… --format=csv`: identity, NUMA-independent facts and NVLink fabric of each device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from launcher.topology.model import Device

MISSING = ("", "n/a", "[n/a]", "[not supported]", "[unknown error]", "unknown")
ZERO_UUID = "00000000-0000-0000-0000-000000000000"


def read_csv(lines: Sequence[str]) -> list[dict[str, str]]:
    """Rows of every CSV table in the text whose header has `uuid` or `index`: lower-case field without unit -> value.

    A value that the tool could not give is left out; a line with another number of fields ends its table.
    """
    rows: list[dict[str, str]] = []
    fields: list[str] = []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        names = [cell.split(" [")[0].lower() for cell in cells]
        if len(names) > 1 and ({"uuid", "index", "gpu_uuid"} & set(names)):
            fields = names
        elif fields and len(cells) == len(fields):
            rows.append({k: v for k, v in zip(fields, cells, strict=True) if v.lower() not in MISSING})
        elif line.strip():
            fields = []
    return rows


def short_bdf(text: str) -> str:
    """`00000000:83:00.0` -> `0000:83:00.0`, the kernel's way to write it."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if rest.count(":") == 1 else text.lower()


def fabric_of(row: Mapping[str, str]) -> str | None:
    """Cluster UUID and clique of the NVLink fabric over hosts; None outside one, as on a single NVSwitch box."""
    cluster, clique = row.get("fabric.clusteruuid"), row.get("fabric.cliqueid")
    return f"{cluster}/{clique}" if cluster and cluster != ZERO_UUID and clique is not None else None


def described(devices: Iterable[Device], rows: Sequence[Mapping[str, str]]) -> tuple[tuple[Device, ...], list[str]]:
    """Devices with what the query says of them, joined by index; a device that only the query knows is added.

    Returns a gap for every disagreement between matrix and query.
    """
    known = {device.index: device for device in devices}
    had_matrix = bool(known)
    gaps = []
    busy = {row["gpu_uuid"] for row in rows if "gpu_uuid" in row}
    about: dict[int, dict[str, str]] = {}
    for row in rows:
        if row.get("index", "").isdigit():
            about.setdefault(int(row["index"]), {}).update(row)
    for index, row in sorted(about.items()):
        if had_matrix and index not in known:
            gaps.append(f"GPU{index}: the query lists it, the matrix does not")
        known[index] = with_query(known.get(index, Device(index, f"GPU{index}")), row, busy)
    if about and had_matrix:
        gaps += [
            f"{known[index].name}: the matrix lists it, the query does not" for index in sorted(known.keys() - about)
        ]
    return tuple(known[index] for index in sorted(known)), gaps


def with_query(device: Device, row: Mapping[str, str], busy: set[str]) -> Device:
    return replace(
        device,
        uuid=row.get("uuid", device.uuid),
        bdf=short_bdf(row["pci.bus_id"]) if "pci.bus_id" in row else device.bdf,
        model=row.get("name", device.model),
        busy=row.get("uuid") in busy,
        fabric=fabric_of(row),
    )
