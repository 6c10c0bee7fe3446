"""Everything that is found out before a job starts: hosts, their facts, devices, placement, the meeting point.

Nothing is started here, and nothing is left behind but our node side in a cache folder of each host.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from launcher.agent.check import describe_host
from launcher.common.paths import JobPaths, jobs_root
from launcher.errors import CannotActError, InputError
from launcher.hosts.bundle import local_bundle, put_bundle
from launcher.hosts.node_side import call
from launcher.hosts.protocol import Host, HostError, on_all
from launcher.inventory import Cluster, LocalCluster, SshCluster, load_inventory
from launcher.jobs.devices import assign_devices
from launcher.jobs.endpoint import Meeting, agree_on_endpoint, local_meeting
from launcher.jobs.reach import addresses, connect
from launcher.jobs.record import JobRecord, RankRecord
from launcher.jobs.request import RunRequest, build_spec, candidate_hosts, environments
from launcher.jobs.store import new_job_id
from launcher.render import NodeLaunch, NodePlan, Rendezvous, Settings, render_node
from launcher.secrets import masked
from launcher.spec import JobSpec

REMOTE_DIRECTORY = "~/.local/state/dlaunch/jobs"


@dataclass(frozen=True)
class Prepared:
    """A job that is ready to start. `notes` are for the user: choices that he might not expect."""

    record: JobRecord
    spec: JobSpec
    settings: Settings  # with secrets, unlike the record's
    rendezvous: Rendezvous
    notes: Sequence[str] = ()

    def launches(self) -> list[NodeLaunch]:
        """What each node starts, in order of node ranks."""
        return [
            render_node(self.record.job, self.spec, node, self.rendezvous, self.settings, self.record.attempt)
            for node in self.record.nodes
        ]


@dataclass
class Site:
    """Hosts of one cluster, connected, with what they say of themselves."""

    hosts: dict[str, Host]
    facts: dict[str, dict[str, Any]]
    bundles: dict[str, str]
    python: str
    known: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()


@dataclass(frozen=True)
class Layout:
    """Where an attempt runs."""

    nodes: Sequence[NodePlan]
    rendezvous: Rendezvous
    known: Mapping[str, Mapping[str, Any]]
    notes: Sequence[str]


def prepare(request: RunRequest) -> Prepared:
    """Raises InputError (nothing can start as asked for) and CannotActError (a host cannot be reached or used)."""
    inventory, file = load_inventory(request.inventory)
    name, cluster = inventory.cluster(request.cluster)
    candidates = candidate_hosts(cluster, request.exclude)
    spec = build_spec(request, cluster, candidates, None)
    check_restarts(spec, cluster)
    wanted = environments(request, cluster)
    job = new_job_id(spec.name)
    layout = lay_out(cluster, spec, candidates[: spec.nodes], job)
    settings = Settings(
        inventory_env=wanted.inventory,
        command_line_env=wanted.command_line,
        forwarded_env=wanted.forwarded if isinstance(cluster, SshCluster) else {},
        setup=cluster.setup,
        container=cluster.container,
        checkpoint_directory=checkpoint_directory(cluster, layout.nodes),
    )
    record = JobRecord(
        job=job,
        name=spec.name,
        cluster=name,
        kind=cluster.kind,
        state="starting",
        created=time.time(),
        spec=spec.to_json(),
        mesh=dict(spec.mesh.degrees),
        nodes=tuple(layout.nodes),
        ranks=tuple(rank_records(spec, layout.nodes)),
        inventory=file,
        settings=mask_settings(settings),
        addresses=layout.known,
        spares=cluster.spares if isinstance(cluster, SshCluster) else (),
    )
    return Prepared(record, spec, settings, layout.rendezvous, layout.notes)


def lay_out(cluster: Cluster, spec: JobSpec, names: Sequence[str], job: str) -> Layout:
    """Look at the hosts, order them, give their devices to ranks, and agree where to meet."""
    site = open_site(cluster, names, spec)
    try:
        nodes = [plan_node(cluster, site, host, node_rank, job) for node_rank, host in enumerate(names)]
        nodes, notes = assign_devices(spec, cluster, nodes, site.hosts)
        meeting = meet(cluster, site, nodes)
    finally:
        site.close()
    nodes = [replace(node, interface=meeting.interfaces[node.host]) for node in nodes]
    return Layout(nodes, meeting.rendezvous, site.known, notes)


def check_restarts(spec: JobSpec, cluster: Cluster) -> None:
    """Spares and elastic jobs need checkpoints that another host can read. Raises InputError."""
    if isinstance(cluster, SshCluster) and cluster.spares and spec.max_restarts and not cluster.shared_filesystem:
        raise InputError(
            "spares need a shared file system: a new host could not read the old one's checkpoints",
            where="spares",
            help="set shared_filesystem: true with a `directory` on it, or remove the spares",
        )


def open_site(cluster: Cluster, names: Sequence[str], spec: JobSpec) -> Site:
    """Connect, bring the node side, and ask each host for its facts. Raises CannotActError for the hosts that fail."""
    if isinstance(cluster, LocalCluster):
        facts = describe_host(str(jobs_root()), [spec.script])
        hosts = connect(names, {})
        return Site(
            hosts, dict.fromkeys(names, facts), dict.fromkeys(names, local_bundle()), cluster.python or sys.executable
        )
    assert isinstance(cluster, SshCluster)
    known = addresses(cluster)
    python = cluster.python or "python3"
    hosts = connect(names, known)
    bundles = _answers(on_all(list(hosts.values()), lambda host: put_bundle(host, python)))
    directory = cluster.directory or REMOTE_DIRECTORY
    facts_by_host = _answers(
        on_all(
            list(hosts.values()),
            lambda host: call(host, python, bundles[host.name], "describe", directory=directory, paths=[spec.script]),
        )
    )
    for name, fact in facts_by_host.items():
        if fact["missing"]:
            raise CannotActError(
                f"{name} has no file {spec.script}", help="--sync sends the code, or share a file system"
            )
    return Site(hosts, facts_by_host, bundles, python, known)


def _answers(results: Mapping[str, Any]) -> dict[str, Any]:
    """All answers, or one error that names every host that failed."""
    failed = [result for result in results.values() if isinstance(result, HostError)]
    if failed:
        raise CannotActError("; ".join(error.message for error in failed), help=failed[0].help or "dlaunch nodes")
    return dict(results)


def plan_node(cluster: Cluster, site: Site, host: str, node_rank: int, job: str) -> NodePlan:
    facts = site.facts[host]
    nodes_here = len(site.hosts) if isinstance(cluster, LocalCluster) else 1
    return NodePlan(
        node_rank=node_rank,
        host=host,
        directory=str(Path(facts["directory"]) / job),
        python=site.python,
        bundle=site.bundles[host],
        workdir=cluster.workdir or str(Path.cwd()),
        cpus=max(1, facts["cpus"] // nodes_here),
    )


def meet(cluster: Cluster, site: Site, nodes: Sequence[NodePlan]) -> Meeting:
    if isinstance(cluster, LocalCluster):
        return local_meeting([node.host for node in nodes])
    return agree_on_endpoint(site.hosts, nodes, site.facts)


def checkpoint_directory(cluster: Cluster, nodes: Sequence[NodePlan]) -> str | None:
    """Where checkpoints go, if every host of a later attempt can read them there."""
    shared = isinstance(cluster, LocalCluster) or len(nodes) == 1 or getattr(cluster, "shared_filesystem", True)
    return str(JobPaths(Path(nodes[0].directory)).checkpoints) if shared else None


def rank_records(spec: JobSpec, nodes: Sequence[NodePlan]) -> list[RankRecord]:
    """Rank r runs on node r // nproc as local rank r % nproc: that is what static rendezvous gives."""
    records = []
    for rank, coordinate in spec.mesh.ranks():
        node, local_rank = nodes[rank // spec.nproc_per_node], rank % spec.nproc_per_node
        device = node.devices[local_rank] if node.devices else None
        records.append(RankRecord(rank, node.node_rank, local_rank, node.host, coordinate, device))
    return records


def mask_settings(settings: Settings) -> Settings:
    return replace(
        settings,
        inventory_env=masked(settings.inventory_env),
        command_line_env=masked(settings.command_line_env),
        forwarded_env=masked(settings.forwarded_env),
    )
