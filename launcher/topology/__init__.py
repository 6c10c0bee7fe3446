"""What the hardware is: devices, NICs, links, NUMA nodes and switches, from any vendor's tool or a saved text.

The model alone is imported here: a job without devices starts without the parsers.
"""

from __future__ import annotations

from launcher.topology.model import Device, HostTopology, Link, Nic

__all__ = ["Device", "HostTopology", "Link", "Nic"]
