"""A program called nvidia-smi that answers from data of the test, and refuses what the real one would refuse."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab.ssh import SshLab

PROGRAM = """#!{python}
import json, os, sys
data = json.load(open({data!r}.replace("HOST", os.uname().nodename)))
args = sys.argv[1:]
if args == ["topo", "-m"]:
    sys.stdout.write(data["matrix"])
elif len(args) == 2 and args[1] == "--format=csv" and args[0].startswith(("--query-gpu=", "--query-compute-apps=")):
    option, _, fields = args[0].partition("=")
    rows = data["devices"] if option == "--query-gpu" else data["apps"]
    known = data["fields"] if option == "--query-gpu" else ["gpu_uuid", "pid"]
    for field in fields.split(","):
        if field not in known:
            sys.stdout.write('Field "%s" is not a valid field to query.\\n' % field)
            sys.exit(2)
    print(", ".join(fields.split(",")))
    for row in rows:
        print(", ".join(str(row.get(field, "[N/A]")) for field in fields.split(",")))
else:
    sys.stdout.write("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\\n")
    sys.exit(6)
"""
FIELDS = ("index", "uuid", "pci.bus_id", "name")
FABRIC_FIELDS = ("fabric.clusterUuid", "fabric.cliqueId")


def install(
    folder: Path,
    matrix: str,
    devices: Sequence[Mapping[str, object]],
    apps: Sequence[Mapping[str, object]] = (),
    new_driver: bool = True,
    host: str = "",
) -> Path:
    """Write the program into `folder`, which a test puts on PATH; an old driver does not know the fabric's fields.

    With `host` it answers so on that host alone: for hosts that share the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"nvidia-smi-{host}.json"
    fields = [*FIELDS, *(FABRIC_FIELDS if new_driver else ())]
    text = json.dumps({"matrix": matrix, "devices": list(devices), "apps": list(apps), "fields": fields})
    data.write_text(text)
    program = folder / "nvidia-smi"
    answers = str(folder / f"nvidia-smi-{'HOST' if host else ''}.json")
    program.write_text(PROGRAM.format(python=sys.executable, data=answers))
    program.chmod(0o755)
    return program


Pair = tuple[int, int]


def matrix(count: int, links: Mapping[Pair, str], other: str = "SYS", near: Sequence[int] = ()) -> str:
    """`nvidia-smi topo -m` of `count` devices joined as `links` say, all other pairs by `other`.

    `near` gives for each device the number of the only NIC next to it, which is also its NUMA node and its CPU.
    """
    nics = range(len(set(near)))
    names = [*(f"GPU{index}" for index in range(count)), *(f"NIC{nic}" for nic in nics)]
    rows = []
    for a in range(count):
        cells = ["X" if a == b else links.get((min(a, b), max(a, b)), other) for b in range(count)]
        cells += ["PIX" if near[a] == nic else "SYS" for nic in nics]
        place = near[a] if near else 0
        rows.append("\t".join([f"GPU{a}", *cells, str(place) if near else "0-1", str(place)]))
    for nic in nics:
        cells = ["PIX" if near[a] == nic else "SYS" for a in range(count)]
        rows.append("\t".join([f"NIC{nic}", *cells, *("X" if nic == other_nic else "SYS" for other_nic in nics)]))
    header = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity"])
    legend = "".join(f"  NIC{nic}: mlx5_{nic}\n" for nic in nics)
    return "\n".join([header, *rows]) + (f"\n\nNIC Legend:\n\n{legend}" if legend else "\n")


def give_devices(lab: SshLab, host: str, text: str, order: Sequence[int] = (0, 1, 2, 3)) -> None:
    """Put the program on a host; device i has the UUID and slot of number order[i]."""
    devices = [
        {
            "index": i,
            "uuid": f"GPU-{host}-{place}",
            "pci.bus_id": f"00000000:{place + 1:02x}:00.0",
            "name": "NVIDIA A100",
        }
        for i, place in enumerate(order)
    ]
    program = install(Path(lab.share[0]) / host, text, devices)
    lab.run_on(host, ["ln", "-sf", str(program), "/usr/local/bin/nvidia-smi"])
