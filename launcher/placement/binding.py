"""Which CPUs and which NIC belong to a rank, from the place of its device."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.common.binding import Binding, index_list
from launcher.hosts.names import fold_numbers
from launcher.topology.model import Device, HostTopology


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
    near = tuple(nic.label for nic in host.near_nics(device))
    return Binding(
        rank, device.name, device.numa, cpus, nic.label if nic else None, why, device.handle, device.bdf, near
    )


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
    usable = sorted(set(index_list(cpus)) & set(index_list(host.allowed_cpus)))
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
