"""Identity, model, fabric and use of each device: `nvidia-smi --query-gpu=… --format=csv`, `rocm-smi --csv`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from launcher.common.node_reports.nvidia_smi import is_csv, parse_csv, value_or_none
from launcher.topology.model import Device

ROCM_HEADER = "device,"
ZERO_UUID = "00000000-0000-0000-0000-000000000000"


def read_tables(lines: Sequence[str]) -> list[dict[str, str]]:
    """Rows of all CSV tables in a text of any tools: lower-case column -> value, where the tool gave one.

    A table goes on as long as lines have its number of commas, or until the next header.
    """
    rows: list[dict[str, str]] = []
    header = ""
    tables: list[list[str]] = []
    for commas, group in groupby(lines, key=lambda line: line.count(",")):
        for line in group if commas else ():
            if is_csv(line) or line.startswith(ROCM_HEADER):
                header = line
                tables.append([line])
            elif tables and line.count(",") == header.count(","):
                tables[-1].append(line)
    for table in tables:
        rows += [{k.lower(): v for k, v in row.items() if value_or_none(v)} for row in parse_csv("\n".join(table)).rows]
    return [rocm_row(row) if "device" in row else row for row in rows]


def rocm_row(row: Mapping[str, str]) -> dict[str, str]:
    """A row of `rocm-smi --showuniqueid --showbus --csv` under the names of nvidia-smi's fields.

    ROCR_VISIBLE_DEVICES takes the unique id in the form of rocminfo: `GPU-` and 16 hexadecimal digits.
    """
    card, unique, bus = row["device"], row.get("unique id", ""), row.get("pci bus")
    found = {"index": card.removeprefix("card")} if re.fullmatch(r"card\d+", card) else {}
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", unique) and int(unique, 16):
        found["uuid"] = f"GPU-{int(unique, 16):016x}"
    return found | ({"pci.bus_id": bus} if bus else {})


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
    about: dict[int, dict[str, str]] = {}
    for row in rows:
        if row.get("index", "").isdecimal():
            about.setdefault(int(row["index"]), {}).update(row)
    gaps = []
    if about and had_matrix:
        gaps += [
            f"GPU{index}: the query lists it, the matrix does not" for index in sorted(about.keys() - known.keys())
        ]
        gaps += [
            f"{known[i].name}: the matrix lists it, the query does not" for i in sorted(known.keys() - about.keys())
        ]
    busy = {row["gpu_uuid"] for row in rows if "gpu_uuid" in row}
    for index, row in about.items():
        known[index] = with_query(known.get(index, Device(index, f"GPU{index}")), row, busy)
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
