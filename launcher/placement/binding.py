"""Which CPUs and which NIC belong to a rank, from the place of its device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launcher.hosts.names import fold_numbers
from launcher.topology.model import Device, HostTopology


@dataclass(frozen=True)
class Binding:
    """What one local rank is bound to; None where the hardware does not tell. `cpus` is a list as the kernel writes it.

    `why` says where the CPUs come from, or why there are none.
    """

    local_rank: int
    device: str | None
    numa: int | None
    cpus: str | None
    nic: str | None
    why: str

    def line(self) -> str:
        """`local rank 0: GPU0, NUMA 0, CPUs 0-11,24-35, NIC mlx5_0 (…)`, as mpirun's binding report."""
        known = [
            self.device,
            None if self.numa is None else f"NUMA {self.numa}",
            f"CPUs {self.cpus}" if self.cpus else "not bound",
            f"NIC {self.nic}" if self.nic else None,
        ]
        return f"local rank {self.local_rank}: {', '.join(filter(None, known))} ({self.why})"


def parse_cpus(text: str) -> list[int]:
    """`0-3,8` -> 0, 1, 2, 3, 8."""
    spans = [part.partition("-") for part in text.split(",") if part]
    return [cpu for low, _, high in spans for cpu in range(int(low), int(high or low) + 1)]


def bind(host: HostTopology, indexes: Sequence[int], local_ranks: int) -> list[Binding]:
    """The binding of each local rank. `indexes` are its devices in local-rank order, empty without accelerators.

    A rank gets all CPUs of its device's NUMA node that the session may use, shared with the other ranks there: finer
    slices starve data loaders. Ranks that share a device's distance to several NICs take them in turn.
    """
    devices = {device.index: device for device in host.devices}
    if not indexes:
        return [spread(host, rank, local_ranks) for rank in range(local_ranks)]
    chosen = [devices[index] for index in indexes]
    return [bound(host, rank, device, turn(host, chosen, rank)) for rank, device in enumerate(chosen)]


def turn(host: HostTopology, devices: Sequence[Device], rank: int) -> int:
    """How many earlier local ranks have the same nearest NICs."""
    near = host.near_nics(devices[rank])
    return sum(host.near_nics(device) == near for device in devices[:rank])


def bound(host: HostTopology, rank: int, device: Device, turn: int) -> Binding:
    nics = [nic for nic in host.near_nics(device) if nic.up is not False]
    nic = nics[turn % len(nics)] if nics else None
    cpus, why = cpus_of(host, device)
    return Binding(rank, device.name, device.numa, cpus, nic.label if nic else None, why)


def cpus_of(host: HostTopology, device: Device) -> tuple[str | None, str]:
    """CPUs near a device: its NUMA node's, else the list that the vendor's tool gives; cut to the allowed ones."""
    if device.numa is not None and device.numa in host.numa_cpus:
        return allowed(host, host.numa_cpus[device.numa], f"CPUs of NUMA {device.numa}")
    if device.cpus:
        return allowed(host, device.cpus, "CPU affinity of the device")
    return None, "the device's NUMA node is not known"


def allowed(host: HostTopology, cpus: str, why: str) -> tuple[str | None, str]:
    if host.allowed_cpus is None:
        return cpus, why
    usable = sorted(set(parse_cpus(cpus)) & set(parse_cpus(host.allowed_cpus)))
    if not usable:
        return None, f"none of the {why} is in this session's cpuset {host.allowed_cpus}"
    return fold_numbers(usable), why


def spread(host: HostTopology, rank: int, local_ranks: int) -> Binding:
    """Without accelerators: local ranks in equal runs over the NUMA nodes; with one node there is nothing to bind."""
    nodes = sorted(host.numa_cpus)
    if len(nodes) < 2:
        return Binding(rank, None, None, None, None, "one NUMA node")
    node = nodes[rank * len(nodes) // local_ranks]
    cpus, why = allowed(host, host.numa_cpus[node], f"CPUs of NUMA {node}")
    nic = next((nic for nic in host.nics if nic.numa == node and nic.up is not False), None)
    return Binding(rank, None, node, cpus, nic.label if nic else None, why)
