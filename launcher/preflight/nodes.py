"""What the hosts of a cluster have: the document and the table of `dlaunch nodes`. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from launcher.hosts.names import fold
from launcher.preflight.facts import HostFacts
from launcher.slurm.status import NodeStatus
from launcher.topology.show import device_document, nic_document

Row = dict[str, Any]
SHOWN = ("python", "torch", "driver", "cuda", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "slurm")
BUSY_LOAD = 0.5  # of the CPUs, on a host without devices


def answered(facts: HostFacts) -> Row:
    """The row of a host that was looked at. Sizes in bytes."""
    topology = facts.topology
    return {
        "host": facts.host,
        "reachable": True,
        "state": use(facts),
        "hostname": facts.hostname,
        "devices": [device_document(topology, device) for device in topology.devices],
        "nics": [nic_document(nic) for nic in topology.nics],
        "cpus": facts.cpus,
        "memory": facts.memory,
        "load": round(facts.load, 2),
        "disk_free": facts.disk_free,
        "versions": dict(facts.versions),
        "addresses": {name: list(held) for name, held in facts.addresses.items() if held and name != "lo"},
        "gaps": list(topology.gaps),
        "error": "",
    }


def silent(host: str, error: str) -> Row:
    """The row of a host that gave no answer."""
    return {
        "host": host,
        "reachable": False,
        "state": "unknown",
        "devices": [],
        "nics": [],
        "versions": {},
        "error": error,
    }


def in_slurm(node: NodeStatus) -> Row:
    """The row of a node as Slurm describes it; only a job sees its devices and versions."""
    used = sum(gres.count for gres in node.gres_used if gres.name == "gpu")
    models = [gres.model or None for gres in node.gres if gres.name == "gpu" for _ in range(gres.count)]
    free = node.state.takes_jobs and not node.cpus_allocated
    partly = node.state.takes_jobs and (node.cpus_allocated or 0) < (node.cpus or 0)
    return {
        "host": node.name,
        "reachable": "NOT_RESPONDING" not in node.state.flags and node.state.suffix != "*",
        "state": "free" if free else "partly busy" if partly else "busy" if node.state.takes_jobs else "unavailable",
        "slurm_state": str(node.state),
        "partitions": list(node.partitions),
        "devices": [{"index": index, "model": model} for index, model in enumerate(models)],
        "devices_used": used,
        "nics": [],
        "cpus": node.cpus,
        "cpus_allocated": node.cpus_allocated,
        "memory": (node.memory or 0) << 20,
        "versions": {"slurm": node.version},
        "error": node.reason,
    }


def use(facts: HostFacts) -> str:
    """`free`, `partly busy` or `busy`: by processes on the devices, without devices by the load."""
    devices = facts.topology.devices
    if not devices:
        return "busy" if facts.load > BUSY_LOAD * facts.cpus else "free"
    busy = sum(device.busy for device in devices)
    return "free" if not busy else "busy" if busy == len(devices) else "partly busy"


def table(rows: Sequence[Row]) -> list[str]:
    """One line for all hosts that say the same, as a person reads them."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        groups.setdefault(cells(row), []).append(row["host"])
    lines: list[tuple[str, ...]] = [("HOSTS", "STATE", "DEVICES", "NICS", "CPUS", "MEMORY", "VERSIONS")]
    lines += [(fold(hosts), *shown) for shown, hosts in groups.items()]
    *columns, _ = zip(*lines, strict=True)
    widths = [max(map(len, column)) for column in columns]
    return ["  ".join([*map(str.ljust, line, widths), line[-1]]) for line in lines]


def cells(row: Row) -> tuple[str, ...]:
    """What a line shows of a host beside its name."""
    if not row["reachable"]:
        return (row.get("slurm_state") or "unknown", "?", "?", "?", "?", row["error"] or "no answer")
    return (
        row.get("slurm_state") or row["state"],
        counted(device.get("model") or "device" for device in row["devices"]),
        counted(nic_words(nic) for nic in row["nics"]),
        str(row["cpus"] or "?"),
        f"{row['memory'] / 2**30:.0f} GiB",
        " ".join(f"{name} {version}" for name, version in row["versions"].items() if version and name in SHOWN)
        or row["error"],
    )


def nic_words(nic: Mapping[str, Any]) -> str:
    speed = f" {nic['gbps']:g} Gbit/s" if nic["gbps"] else ""
    return f"{'rdma' if nic['rdma'] else 'net'}{speed}{' down' if nic['up'] is False else ''}"


def counted(words: Iterable[str]) -> str:
    return ", ".join(f"{count} x {word}" for word, count in Counter(words).items()) or "none"
