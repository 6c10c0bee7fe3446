"""The nodes of the allocation that we are in, as a site: looked at in one step, in the order of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from launcher.common.binding import index_list
from launcher.errors import CannotActError
from launcher.hosts.protocol import Host
from launcher.hosts.slurm import SlurmHost
from launcher.jobs.site import Site
from launcher.jobs.slurm_submit import devices_per_node
from launcher.slurm.session import Session
from launcher.slurm.topology import node_order
from launcher.topology.model import HostTopology

if TYPE_CHECKING:
    from launcher.inventory import SlurmCluster


def slurm_site(cluster: SlurmCluster, session: Session, script: str) -> Site:
    """Every node with its facts, in the order of the network: neighbours at a switch get neighbouring ranks.

    `session` has asked them to muster, which ends what an earlier run of the job left there. Raises CannotActError.
    """
    answers = session.answers()
    order = node_order({node: answer["topology"] for node, answer in answers.items()})
    facts = {node: {**answers[node], "door": session.doors[node]} for node in order}
    for node, fact in facts.items():
        if fact["missing"]:
            raise CannotActError(f"{node} has no file {script}", help="put the script where all nodes can read it")
    hosts: dict[str, Host] = {node: SlurmHost(node, session.job_id) for node in facts}
    return Site(
        hosts=hosts,
        facts=facts,
        bundles=dict.fromkeys(facts, session.bundle),
        topologies=_topologies(cluster, hosts, facts),
        python=session.python,
        known={node: {"slurm_job": session.job_id} for node in facts},
        ask=session.ask,
    )


def _topologies(
    cluster: SlurmCluster, hosts: Mapping[str, Host], facts: Mapping[str, Mapping[str, Any]]
) -> dict[str, HostTopology]:
    """Each node's hardware with its switches; a job that asked for no GPU has none, whatever else is in the node."""
    if devices_per_node(cluster) is None:
        found = {node: HostTopology(node) for node in hosts}
    else:
        from launcher.topology.probe import probe_all

        found = probe_all(list(hosts.values())).whole()
    topologies = {}
    for node, topology in found.items():
        switches = tuple(facts[node]["topology"].split(".")[:-1])
        topologies[node] = allocated(replace(topology, switches=switches), facts[node]["visible"])
    return topologies


def allocated(topology: HostTopology, visible: str) -> HostTopology:
    """Only the devices that the job holds: `visible` is Slurm's CUDA_VISIBLE_DEVICES.

    Where Slurm hides the others from the job, the tools number what is left from 0, and all that they show is ours.
    """
    wanted: Sequence[int] = index_list(visible)
    if len(topology.devices) <= len(wanted) or not wanted:
        return topology
    return replace(topology, devices=tuple(device for device in topology.devices if device.index in wanted))
