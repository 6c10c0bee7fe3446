"""From what the user names, a file, a host or a cluster, to topologies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.errors import InputError, suggestion
from launcher.inventory import SlurmCluster, load_inventory
from launcher.jobs.reach import addresses, connect
from launcher.jobs.request import candidate_hosts
from launcher.slurm.borrow import borrowed
from launcher.slurm.client import call
from launcher.slurm.topology import SlurmTopology
from launcher.slurm.topology import parse_topology as parse_network
from launcher.topology.model import HostTopology
from launcher.topology.probe import probe_all
from launcher.topology.split import split_hosts
from launcher.topology.switches import switch_paths, with_inventory, with_switches
from launcher.topology.vendors import read_any


def read_text(file: Path) -> str:
    """Raises InputError when the file cannot be read."""
    try:
        return file.read_bytes().decode(errors="replace")
    except OSError as error:
        raise InputError(f"cannot read: {error.strerror}", where=str(file)) from error


def network_in(file: Path) -> SlurmTopology | None:
    """Slurm's topology, if that is what the file holds."""
    network = parse_network(read_text(file))
    return network if network.switches or network.blocks else None


def network_document(network: SlurmTopology) -> dict[str, Any]:
    return {
        "switches": {
            name: {"level": switch.level, "nodes": list(switch.nodes), "children": list(switch.children)}
            for name, switch in network.switches.items()
        },
        "blocks": {name: list(nodes) for name, nodes in network.blocks.items()},
        "block_sizes": list(network.block_sizes),
    }


def topologies_in(file: Path) -> list[HostTopology]:
    """Every host in a saved output. Raises InputError when it shows neither devices nor NICs."""
    hosts = [read_any(part, name) for name, part in split_hosts(read_text(file), file.name)]
    if not any(host.devices or host.nics for host in hosts):
        raise InputError(
            "; ".join(("no topology in it", *dict.fromkeys(gap for host in hosts for gap in host.gaps))),
            where=str(file),
            help="nvidia-smi topo -m > FILE (or rocm-smi --showtopo, xpu-smi topology -m, npu-smi info -t topo)",
        )
    return hosts


def topologies_of(names: Sequence[str], cluster_name: str | None, inventory: Path | None) -> list[HostTopology]:
    """Probe hosts of a cluster, all of them without `names`. Raises CannotActError naming those that do not answer.

    Outside of a Slurm job an allocation is asked for: of `names`, else of as many nodes as the entry says.
    """
    cluster = load_inventory(inventory)[0].cluster(cluster_name)[1]
    if isinstance(cluster, SlurmCluster):
        with borrowed(cluster, names):
            known = addresses(cluster)
            network = parse_network(call(["scontrol", "show", "topology"]))
            return with_switches(_probe(names, list(known), known), switch_paths(network))
    return with_inventory(_probe(names, candidate_hosts(cluster, ()), addresses(cluster)), cluster)


def _probe(names: Sequence[str], known: Sequence[str], reached: Mapping[str, Mapping[str, Any]]) -> list[HostTopology]:
    for name in names:
        if name not in known:
            raise InputError(
                f"no host or file {name!r}{suggestion(name, known)}", help=f"known: {', '.join(known[:9])}"
            )
    hosts = connect(names or known, reached)
    try:
        return list(probe_all(list(hosts.values())).whole().values())
    finally:
        for host in hosts.values():
            host.close()
