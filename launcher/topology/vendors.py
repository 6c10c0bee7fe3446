"""Where topologies come from: each vendor's tool, what it is asked on a host, and how its answers are read.

A package that is installed beside dlaunch names a `Vendor` as an entry point of the group `dlaunch.topology`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from shlex import split
from typing import Literal, get_args

from launcher.common.plugins import Plugin, PluginFailure, plugins
from launcher.topology.model import HostTopology

Visible = Literal["", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"]
Read = Callable[[str, str], HostTopology]  # (text, host)


def by_grammar(text: str, host: str) -> HostTopology:
    """All matrices that we know have one grammar; it is loaded where a host has a tool or a file is read."""
    from launcher.topology.parse import parse_topology

    return parse_topology(text, host)


@dataclass(frozen=True)
class Vendor:
    """One kind of accelerator.

    `tool`: the program that tells; a host that has it has such devices. `asks`: name -> arguments of the tool, as words
    of a shell; all that it prints is read at once. `read(text, host)`: the topology, without devices and NICs where the
    text is not of this kind. `visible`: the variable by which a process is given devices, one of those that our agent
    knows; empty where we start no rank on them.
    """

    tool: str
    asks: Mapping[str, str]
    visible: Visible = ""
    read: Read = by_grammar


# An unknown field makes nvidia-smi refuse the whole query, so fields of newer drivers are asked for apart.
NVIDIA = Vendor(
    "nvidia-smi",
    {
        "matrix": "topo -m",
        "query": "--query-gpu=index,uuid,pci.bus_id,name --format=csv",
        "fabric": "--query-gpu=index,fabric.clusterUuid,fabric.cliqueId --format=csv",
        "busy": "--query-compute-apps=gpu_uuid,pid --format=csv",
    },
    "CUDA_VISIBLE_DEVICES",
)
VENDORS = (
    NVIDIA,
    Vendor(
        "rocm-smi",
        {"matrix": "--showtopo", "query": "--showuniqueid --showbus --csv"},
        "ROCR_VISIBLE_DEVICES",
    ),
    Vendor("xpu-smi", {"matrix": "topology -m"}),
    Vendor("npu-smi", {"matrix": "info -t topo"}),
    Vendor("mx-smi", {"matrix": "topo -n"}),
)


@cache
def of_plugins() -> tuple[Sequence[Vendor], Sequence[str]]:
    """Vendors of other packages, and a gap for each that cannot be loaded."""
    found, failed = plugins("dlaunch.topology", _as_vendor)
    return [replace(plugin.value, read=_guarded(plugin)) for plugin in found], [str(failure) for failure in failed]


def vendors() -> Sequence[Vendor]:
    """In the order in which a host is tried: who installed a package for his hardware means it."""
    return (*of_plugins()[0], *VENDORS)


def read_any(text: str, host: str) -> HostTopology:
    """A saved text: as the first plug-in reads it that sees something in it, else by our grammar."""
    added, failed = of_plugins()
    gaps = list(failed)
    for vendor in (*added, NVIDIA):  # ours have one grammar
        topology = vendor.read(text, host)
        gaps += topology.gaps
        if topology.devices or topology.nics:
            break
    return replace(topology, gaps=tuple(gaps))


def _as_vendor(loaded: object) -> Vendor:
    if not isinstance(loaded, Vendor):
        raise TypeError("it must be a launcher.topology.vendors.Vendor")
    if loaded.visible not in get_args(Visible):
        raise ValueError(f"visible must be one of {get_args(Visible)}")
    for arguments in loaded.asks.values():
        split(arguments)  # raises here what would spoil the script for all vendors
    return loaded


def _guarded(plugin: Plugin[Vendor]) -> Read:
    """Its `read`; where that raises or gives something else, a host of which nothing is known but this."""

    def read(text: str, host: str) -> HostTopology:
        try:
            topology = plugin.value.read(text, host)
            if isinstance(topology, HostTopology):
                return topology
            raise TypeError(f"it gave a {type(topology).__name__}, no HostTopology")
        except Exception as error:  # a stranger's code must not end ours
            return HostTopology(host, gaps=(str(PluginFailure.of(plugin.origin, error)),))

    return read
