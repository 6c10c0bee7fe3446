"""A topology for people and as the document of `dlaunch topo` (DESIGN §5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from launcher.hosts.names import fold
from launcher.slurm.topology import SlurmTopology
from launcher.topology.model import Device, HostTopology, Link, Nic
from launcher.topology.switches import switch_paths
from launcher.topology.tree import domain_tree


def document(hosts: Sequence[HostTopology]) -> dict[str, Any]:
    """`{"hosts": […], "tree": …}`; links to NICs stand apart from those between devices."""
    return {"hosts": [host_document(host) for host in hosts], "tree": domain_tree(hosts).to_json() if hosts else None}


def host_document(host: HostTopology) -> dict[str, Any]:
    return {
        "host": host.host,
        "devices": [device_document(host, device) for device in host.devices],
        "nics": [nic_document(nic) for nic in host.nics],
        "links": [link_document(link) for link in host.device_links],
        "nic_links": [link_document(link) for link in host.nic_links],
        "p2p": [{"a": a, "b": b, "status": status} for a, b, status in host.p2p],
        "components": [list(component) for component in host.components],
        "numa_cpus": {str(node): cpus for node, cpus in host.numa_cpus.items()},
        "switches": list(host.switches),
        "distances": "unknown" if host.opaque else "known",
        "gaps": list(host.gaps),
    }


def nic_document(nic: Nic) -> dict[str, Any]:
    return {
        "name": nic.name,
        "device": nic.device,
        "numa": nic.numa,
        "netdev": nic.netdev,
        "up": nic.up,
        "gbps": nic.gbps,
        "rdma": nic.rdma,
    }


def device_document(host: HostTopology, device: Device) -> dict[str, Any]:
    return {
        "index": device.index,
        "name": device.name,
        "uuid": device.uuid,
        "bdf": device.bdf,
        "numa": device.numa,
        "cpus": device.cpus,
        "model": device.model,
        "busy": device.busy,
        "fabric": device.fabric,
        "near_nics": [nic.name for nic in host.near_nics(device)],
    }


def link_document(link: Link) -> dict[str, Any]:
    return {"a": link.a, "b": link.b, "kind": link.kind, "count": link.count}


def tree_lines(hosts: Sequence[HostTopology]) -> list[str]:
    return domain_tree(hosts).lines()


def matrix_lines(host: HostTopology) -> list[str]:
    """The links between devices as a matrix, `?` where one is not known; nearest NICs, NUMA node and CPUs behind."""
    if not host.devices:
        cpus = [f"NUMA {node}: CPUs {cpus}" for node, cpus in sorted(host.numa_cpus.items())]
        return ["no accelerator", *cpus, *(f"NIC {nic.name}" for nic in host.nics)]
    names = [device.name for device in host.devices]
    head = ["", *names, "NIC", "NUMA", "CPUs", "UUID"]
    rows = [head, *([device.name, *cells(host, device, names), *about(host, device)] for device in host.devices)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def cells(host: HostTopology, device: Device, names: Sequence[str]) -> list[str]:
    """The link to each device as printed, else the state of peer access."""
    peer = {(a, b): state for a, b, state in host.p2p}
    links = {name: host.link(device.name, name) for name in names}
    shown = {name: link.printed if link else peer.get((device.name, name), "?") for name, link in links.items()}
    return ["X" if name == device.name else shown[name] for name in names]


def about(host: HostTopology, device: Device) -> list[str]:
    nics = ",".join(nic.label for nic in host.near_nics(device)[:4])
    return [nics or "?", "?" if device.numa is None else str(device.numa), device.cpus or "?", device.uuid or ""]


def host_lines(host: HostTopology) -> list[str]:
    """A host's matrix and what is not known of it."""
    return ["", f"{host.host}:", *matrix_lines(host), *(f"not known: {gap}" for gap in host.gaps)]


def network_lines(network: SlurmTopology) -> list[str]:
    """Where each host hangs: its switches, outermost first."""
    leaves: dict[tuple[str, ...], list[str]] = {}
    for host, path in switch_paths(network).items():
        leaves.setdefault(path, []).append(host)
    return [f"{' / '.join(path)}: {fold(hosts)}" for path, hosts in sorted(leaves.items())]
