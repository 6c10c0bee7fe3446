"""Network switches above the hosts: where each host hangs in Slurm's tree or blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from launcher.inventory import Cluster, SshCluster
from launcher.slurm.topology import SlurmTopology
from launcher.topology.model import HostTopology


def switch_paths(network: SlurmTopology) -> dict[str, tuple[str, ...]]:
    """Host -> the switches above it, outermost first and leaf last; in a block topology its block.

    Switches of one level that all lie above a host, as the spines of a fat tree, are one step of the path.
    """
    if network.blocks:
        return {node: (block,) for block, nodes in network.blocks.items() for node in nodes}
    parents: dict[str, set[str]] = {}
    for name, switch in network.switches.items():
        for child in switch.children:
            parents.setdefault(child, set()).add(name)
    paths = {}
    for leaf, nodes in network.leaves.items():
        above = path_above(leaf, parents)
        paths.update(dict.fromkeys(nodes, (*above, leaf)))
    return paths


def path_above(leaf: str, parents: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Steps above a leaf, outermost first; a loop in the file ends the path."""
    path: list[str] = []
    here, seen = {leaf}, {leaf}
    while here := {parent for name in here for parent in parents.get(name, ())} - seen:
        seen |= here
        path.insert(0, "+".join(sorted(here)))
    return tuple(path)


def with_switches(hosts: Iterable[HostTopology], paths: Mapping[str, tuple[str, ...]]) -> list[HostTopology]:
    """The hosts with their path of switches; a host that the network does not list gets a gap."""
    return [
        replace(host, switches=paths[host.host])
        if host.host in paths
        else replace(host, gaps=(*host.gaps, *["the network's topology does not list this host"] * bool(paths)))
        for host in hosts
    ]


def with_inventory(hosts: Sequence[HostTopology], cluster: Cluster) -> list[HostTopology]:
    """The hosts with the racks and leaf switches that the inventory gives them."""
    if not isinstance(cluster, SshCluster):
        return list(hosts)
    paths = {entry.name: tuple(filter(None, (entry.rack, entry.switch))) for entry in cluster.hosts}
    return with_switches(hosts, {name: path for name, path in paths.items() if path})
