"""A program called nvidia-smi that answers from data of the test, and refuses what the real one would refuse."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAM = """#!{python}
import json, sys
data = json.load(open({data!r}))
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
) -> Path:
    """Write the program into `folder`, which a test puts on PATH; an old driver does not know the fabric's fields."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "nvidia-smi.json"
    fields = [*FIELDS, *(FABRIC_FIELDS if new_driver else ())]
    text = json.dumps({"matrix": matrix, "devices": list(devices), "apps": list(apps), "fields": fields})
    data.write_text(text)
    program = folder / "nvidia-smi"
    program.write_text(PROGRAM.format(python=sys.executable, data=str(data)))
    program.chmod(0o755)
    return program
