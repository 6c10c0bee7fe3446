"""From a cluster's entry or a job's record to the hosts behind it: how they are reached, and where things lie there."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.common.paths import jobs_root
from launcher.hosts.protocol import Answers, Host
from launcher.jobs.record import JobRecord

if TYPE_CHECKING:
    from launcher.inventory import Cluster

REMOTE_DIRECTORY = "~/.local/state/dlaunch/jobs"


def python_of(cluster: Cluster) -> str:
    """The Python on the cluster's hosts: the entry's, else ours; hosts reached by SSH may have none at our path."""
    return cluster.python or ("python3" if cluster.kind == "ssh" else sys.executable)


def jobs_directory(cluster: Cluster) -> str:
    """Where the jobs' directories lie on the cluster's hosts; on Slurm all nodes share it with this machine."""
    if cluster.kind == "ssh":
        return cluster.directory or REMOTE_DIRECTORY
    shared = cluster.directory if cluster.kind == "slurm" else None
    return str(Path(shared).expanduser().absolute() if shared else jobs_root())


def addresses(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """How each host of a cluster is reached, in the inventory's order; empty for this machine.

    On Slurm the nodes of the allocation that we are in. Raises CannotActError outside of one.
    """
    if cluster.kind == "slurm":
        from launcher.slurm.allocation import Allocation

        allocation = Allocation.from_environment()
        return {node: {"slurm_job": allocation.job_id} for node in allocation.nodes}
    if cluster.kind != "ssh":
        return {}
    from launcher.hosts.ssh import SshAddress

    return {
        entry.name: asdict(
            SshAddress(
                name=entry.name,
                address=entry.address or entry.name,
                user=entry.user or cluster.user,
                port=entry.port or cluster.port,
                identity=entry.identity or cluster.identity,
                ssh_config=cluster.ssh_config,
                jump=cluster.jump,
            )
        )
        for entry in cluster.hosts
    }


def connect_each(names: Sequence[str], known: Mapping[str, Mapping[str, Any]]) -> Answers[Host]:
    """Connect to hosts, all at once; one without an address is this machine."""
    from launcher.hosts.local import LocalHost

    remote = [name for name in names if name in known]
    if not remote:
        return Answers({name: LocalHost(name) for name in names}, {})
    if "slurm_job" in known[remote[0]]:
        from launcher.hosts.slurm import SlurmHost

        return Answers({name: SlurmHost(name, known[name]["slurm_job"]) for name in remote}, {})
    from launcher.hosts import connect_all
    from launcher.hosts.ssh import SshAddress

    connected = connect_all([SshAddress(**known[name]) for name in remote])
    return Answers({**connected.good}, connected.failed)


def connect(names: Sequence[str], known: Mapping[str, Mapping[str, Any]]) -> dict[str, Host]:
    """`connect_each` where every host is needed. Raises CannotActError naming all that fail."""
    answers = connect_each(names, known)
    if answers.failed:
        for host in answers.good.values():
            host.close()
    return answers.whole()


def connect_job(record: JobRecord) -> dict[str, Host]:
    """The hosts of a job's nodes by name."""
    return connect(list(dict.fromkeys(node.host for node in record.nodes)), record.addresses)
