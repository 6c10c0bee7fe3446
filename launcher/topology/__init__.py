"""What the hardware is: devices, NICs, links, NUMA nodes and switches, from any vendor's tool or a saved text."""

from __future__ import annotations

from launcher.topology.model import Device, HostTopology, Link, Nic
from launcher.topology.parse import parse_topology
from launcher.topology.probe import probe, probe_all, read_probe

__all__ = ["Device", "HostTopology", "Link", "Nic", "parse_topology", "probe", "probe_all", "read_probe"]
