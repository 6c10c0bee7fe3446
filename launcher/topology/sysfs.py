"""What the kernel says of NUMA nodes and NICs, as the probe prints it: one fact on a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from launcher.topology.model import Nic

PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
RATE = re.compile(r"(\d+(?:\.\d+)?)_Gb/sec")


@dataclass(frozen=True)
class Kernel:
    """NUMA node -> CPU list, the CPUs that this session may use, and the NICs under their kernel names."""

    numa_cpus: Mapping[int, str]
    allowed_cpus: str | None
    nics: tuple[Nic, ...]

    def join(self, listed: Sequence[Nic]) -> tuple[Nic, ...]:
        """The matrix's NICs with the kernel's facts, then those that the matrix lacks."""
        facts = {nic.device: nic for nic in self.nics}
        named = [replace(facts.pop(nic.device, nic), name=nic.name, device=nic.device) for nic in listed]
        return (*named, *facts.values())


def read_sysfs(text: str) -> Kernel:
    """Lines `numa N CPUS`, `allowed CPUS`, `rdma NAME PCI NUMA STATE RATE NETDEV`, `net NAME PCI NUMA STATE MBITS`."""
    facts = [line.split() for line in text.splitlines() if line.strip()]
    rdma = [rdma_nic(fact) for fact in facts if fact[0] == "rdma" and len(fact) == 7]
    behind = {nic.netdev for nic in rdma}
    plain = [plain_nic(fact) for fact in facts if fact[0] == "net" and len(fact) == 6 and fact[1] not in behind]
    return Kernel(
        numa_cpus={int(fact[1]): fact[2] for fact in facts if fact[0] == "numa" and len(fact) == 3},
        allowed_cpus=next((fact[1] for fact in facts if fact[0] == "allowed" and len(fact) == 2), None),
        nics=(*rdma, *plain),
    )


def rdma_nic(fact: Sequence[str]) -> Nic:
    _, name, pci, numa, state, rate, netdev = fact
    speed = RATE.match(rate)
    return Nic(
        name,
        name,
        bdf=pci if PCI.fullmatch(pci) else None,
        numa=known_node(numa),
        netdev=None if netdev == "-" else netdev,
        up=None if state == "-" else "ACTIVE" in state,
        gbps=float(speed[1]) if speed else None,
    )


def plain_nic(fact: Sequence[str]) -> Nic:
    _, name, pci, numa, state, mbits = fact
    speed = int(mbits) / 1000 if mbits.isdecimal() else None  # -1 where the link is down
    return Nic(
        name,
        name,
        bdf=pci if PCI.fullmatch(pci) else None,
        numa=known_node(numa),
        netdev=name,
        up=None if state in ("-", "unknown") else state == "up",
        gbps=speed,
        rdma=False,
    )


def known_node(text: str) -> int | None:
    """The NUMA node; the kernel says -1 where it does not know."""
    return int(text) if text.isdecimal() else None
