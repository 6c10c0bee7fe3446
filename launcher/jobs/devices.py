"""Which devices the nodes of a job use, in the order of local ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launcher.hosts.protocol import Host
from launcher.inventory import Cluster
from launcher.render import NodePlan
from launcher.spec import JobSpec


def assign_devices(
    spec: JobSpec, cluster: Cluster, nodes: Sequence[NodePlan], hosts: Mapping[str, Host]
) -> tuple[list[NodePlan], list[str]]:
    """Nodes in the order of their node ranks, each with its devices; and notes for the user."""
    return list(nodes), []
