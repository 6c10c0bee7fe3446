"""Everything that is found out before a job starts: hosts, their facts, devices, placement, the meeting point.

Nothing is started here, and nothing is left behind but our node side in a cache folder of each host.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.common.paths import JobPaths
from launcher.errors import InputError
from launcher.jobs.devices import assign_on_hosts, assign_on_one_machine, hosts_to_take
from launcher.jobs.endpoint import agree_on_endpoint, local_meeting
from launcher.jobs.record import JobRecord, RankRecord
from launcher.jobs.request import Environments, RunRequest, build_spec, candidate_hosts, check_kind, environments
from launcher.jobs.site import Site, open_site
from launcher.jobs.store import new_job_id
from launcher.render import NodeLaunch, NodePlan, Rendezvous, Settings, render_node
from launcher.secrets import masked
from launcher.spec import JobSpec

if TYPE_CHECKING:  # a supervisor starts without the inventory's models
    from launcher.inventory import Cluster
    from launcher.slurm.script import Script

FROM_STEP_0 = "without shared_filesystem no host can read another's checkpoints: a restart begins at step 0"


@dataclass(frozen=True)
class Prepared:
    """A job that is ready to start. `notes` are for the user: choices that he might not expect."""

    record: JobRecord
    spec: JobSpec
    settings: Settings  # with secrets, unlike the record's
    rendezvous: Rendezvous
    notes: Sequence[str] = ()
    script: Script | None = None  # the batch script, on Slurm

    def launches(self) -> list[NodeLaunch]:
        """What each node starts, in order of node ranks."""
        return [
            render_node(self.record.job, self.spec, node, self.rendezvous, self.settings, self.record.attempt)
            for node in self.record.nodes
        ]


@dataclass(frozen=True)
class Layout:
    """Where an attempt runs, and the spec with its mesh as placed."""

    spec: JobSpec
    nodes: Sequence[NodePlan]
    rendezvous: Rendezvous
    known: Mapping[str, Mapping[str, Any]]
    notes: Sequence[str]


def prepare(request: RunRequest) -> Prepared:
    """Raises InputError (nothing can start as asked for) and CannotActError (a host cannot be reached or used)."""
    from launcher.inventory import load_inventory

    inventory, file = load_inventory(request.inventory)
    name, cluster = inventory.cluster(request.cluster)
    check_kind(request, cluster)
    if request.exclude_bad:
        from launcher.preflight.kept import exclusions

        request = replace(request, exclude=(*request.exclude, *exclusions(name, cluster, file, time.time())))
    if cluster.kind == "slurm":
        from launcher.jobs.slurm_submit import prepare_slurm

        return prepare_slurm(request, name, cluster, file)
    candidates = candidate_hosts(cluster, request.exclude)
    shape = build_spec(request, cluster, candidates, None)
    check_restarts(shape, cluster)
    wanted, job = environments(request, cluster), new_job_id(shape.name)
    site = open_site(cluster, hosts_to_take(shape, cluster, candidates), shape.script, shape.sync)
    try:
        layout = lay_out(cluster, build_spec(request, cluster, candidates, site.devices_per_host), site, job)
    finally:
        site.close()
    settings = settings_of(cluster, wanted, layout.nodes)
    record = JobRecord(
        job=job,
        name=layout.spec.name,
        cluster=name,
        kind=cluster.kind,
        state="starting",
        created=time.time(),
        inventory=file,
        settings=mask_settings(settings),
        addresses=site.known,
        spares=cluster.spares if cluster.kind == "ssh" else (),
        **placed_fields(layout),
    )
    lone = shape.max_restarts and settings.checkpoint_directory is None
    return Prepared(record, layout.spec, settings, layout.rendezvous, [*layout.notes, *([FROM_STEP_0] if lone else [])])


def settings_of(cluster: Cluster, wanted: Environments, nodes: Sequence[NodePlan]) -> Settings:
    """What the entry, the command line and the shell add to every node."""
    return Settings(
        inventory_env=wanted.inventory,
        command_line_env=wanted.command_line,
        forwarded_env=wanted.forwarded,
        setup=cluster.setup,
        container=cluster.container,
        checkpoint_directory=checkpoint_directory(cluster, nodes),
    )


def placed_fields(layout: Layout) -> dict[str, Any]:
    """The fields of a record that follow from where the attempt runs."""
    return {
        "spec": layout.spec.to_json(),
        "mesh": dict(layout.spec.mesh.degrees),
        "nodes": tuple(layout.nodes),
        "ranks": tuple(rank_records(layout.spec, layout.nodes)),
    }


def lay_out(cluster: Cluster, spec: JobSpec, site: Site, job: str) -> Layout:
    """Order the hosts, give their devices to ranks, and agree where to meet."""
    nodes = [plan_node(cluster, site, host, node_rank, job) for node_rank, host in enumerate(site.hosts)]
    if cluster.kind == "local":
        assignment = assign_on_one_machine(spec, nodes, next(iter(site.topologies.values())))
        meeting = local_meeting([node.host for node in nodes])
    else:
        assignment = assign_on_hosts(spec, nodes, site.topologies)
        meeting = agree_on_endpoint(site, assignment.nodes)
    placed = [replace(node, interface=meeting.interfaces[node.host]) for node in assignment.nodes]
    moved = replace(spec, mesh=assignment.mesh, mesh_given=spec.mesh_given or assignment.mesh.axes != spec.mesh.axes)
    return Layout(moved, placed, meeting.rendezvous, site.known, assignment.notes)


def check_restarts(spec: JobSpec, cluster: Cluster) -> None:
    """Spares and elastic jobs need checkpoints that another host can read. Raises InputError."""
    if cluster.kind == "ssh" and cluster.spares and spec.max_restarts and not cluster.shared_filesystem:
        raise InputError(
            "spares need a shared file system: a new host could not read the old one's checkpoints",
            where="spares",
            help="set shared_filesystem: true with a `directory` on it, or remove the spares",
        )


def plan_node(cluster: Cluster, site: Site, host: str, node_rank: int, job: str) -> NodePlan:
    facts = site.facts[host]
    nodes_here = len(site.hosts) if cluster.kind == "local" else 1
    return NodePlan(
        node_rank=node_rank,
        host=host,
        directory=str(Path(facts["directory"]) / job),
        python=site.python,
        bundle=site.bundles[host],
        workdir=site.workdirs.get(host) or cluster.workdir or str(Path.cwd()),
        script=site.scripts.get(host),
        clock_offset=facts.get("clock_offset", 0.0),
        cpus=max(1, facts["cpus"] // nodes_here),
    )


def checkpoint_directory(cluster: Cluster, nodes: Sequence[NodePlan]) -> str | None:
    """Where checkpoints go, if every host of a later attempt can read them there."""
    shared = cluster.kind == "local" or len(nodes) == 1 or getattr(cluster, "shared_filesystem", True)
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
