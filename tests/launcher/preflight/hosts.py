"""Facts of sound hosts, to be changed in one place by a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from launcher.preflight.facts import UNLIMITED, HostFacts, Interface, Report
from launcher.topology import Device, HostTopology, Link, Nic

GIB = 1 << 30
NAMES = ("n1", "n2", "n3", "n4")
RESOLVED = {name: [f"10.0.0.{number}"] for number, name in enumerate(NAMES, 1)}


def topology(host: str, devices: int = 4, lanes: int = 12) -> HostTopology:
    """All devices joined by NVLink, one RDMA port at 200 Gbit/s."""
    return HostTopology(
        host,
        tuple(
            Device(i, f"GPU{i}", uuid=f"GPU-{host}-{i}", bdf=f"0000:0{i}:00.0", model="A100") for i in range(devices)
        ),
        (Nic("NIC0", "mlx5_0", up=True, gbps=200.0),),
        tuple(Link(f"GPU{a}", f"GPU{b}", "NV", lanes) for a in range(devices) for b in range(a + 1, devices)),
    )


def sound(host: str = "n1", **changes: Any) -> HostFacts:
    """A host with nothing wrong, and what differs from that."""
    facts = HostFacts(
        host=host,
        hostname=host,
        topology=topology(host),
        versions={
            "python": "3.11.7",
            "torch": "2.9.0",
            "nvidia-nccl-cu12": "2.27.5",
            "driver": "570.1",
            "cuda": "12.8",
        },
        addresses={"lo": ["127.0.0.1"], "eth0": RESOLVED[host]},
        own_address=RESOLVED[host][0],
        directory="/root/jobs",
        disk_free=100 * GIB,
        py_spy="/usr/bin/py-spy",
        cpus=64,
        memory=512 * GIB,
        shm={"total": 256 * GIB, "free": 256 * GIB},
        limits={"memlock": (UNLIMITED, UNLIMITED), "open_files": (65536, 65536)},
        interfaces={"lo": Interface(True), "eth0": Interface(True, 25.0)},
        resolved=RESOLVED,
        ptrace_scope=1,
        rdma=["mlx5_0"],
        verbs=["uverbs0"],
        reports={"dmesg": Report(), "nvidia-smi": Report(), "lspci": Report()},
        ranks=4,
    )
    return replace(facts, **changes)


def four(**of_n3: Any) -> list[HostFacts]:
    """Four hosts; what is given holds for n3 alone."""
    return [sound(name, **(of_n3 if name == "n3" else {})) for name in NAMES]
