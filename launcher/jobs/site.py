"""The hosts of one cluster before a job starts: connected, with our node side and the code, and what they have."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.errors import CannotActError
from launcher.hosts.bundle import local_bundle, put_bundle
from launcher.hosts.node_side import call
from launcher.hosts.protocol import Host, on_all
from launcher.jobs.devices import free_devices
from launcher.jobs.reach import addresses, connect, jobs_directory, python_of
from launcher.jobs.request import WORKLOADS
from launcher.topology.model import HostTopology

if TYPE_CHECKING:
    from launcher.inventory import Cluster, LocalCluster, SshCluster

Ask = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]  # command and arguments -> answer of every host


@dataclass
class Site:
    """Hosts by name. `scripts` and `workdirs` hold what lies elsewhere on a host than here."""

    hosts: dict[str, Host]
    facts: dict[str, dict[str, Any]]
    bundles: dict[str, str]
    topologies: dict[str, HostTopology]
    python: str
    known: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    workdirs: Mapping[str, str] = field(default_factory=dict)
    ask: Ask | None = None  # a quicker way than a call to each host

    @property
    def devices_per_host(self) -> int | None:
        """The free devices that every host has; None without any."""
        return min(free_devices(topology) for topology in self.topologies.values()) or None

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()


def open_site(cluster: Cluster, names: Sequence[str], script: str, sync: bool) -> Site:
    """Connect, bring our node side (with `sync` the code around `script` too), and ask each host for its facts.

    Raises CannotActError naming the hosts that fail.
    """
    if cluster.kind == "local":
        return local_site(cluster, names, script)
    assert cluster.kind == "ssh"
    from launcher.topology.probe import probe_all
    from launcher.topology.switches import with_inventory

    known, python = addresses(cluster), python_of(cluster)
    hosts = connect(names, known)
    every = list(hosts.values())
    try:
        bundles = on_all(every, lambda host: put_bundle(host, python)).whole()
        scripts, workdirs = bring_code(every, python, Path(script), bundles, sync)
        facts = on_all(
            every,
            lambda host: describe(
                host,
                python,
                bundles,
                cluster,
                scripts.get(host.name, script),
                workdirs.get(host.name) or cluster.workdir or str(Path.cwd()),
            ),
        ).whole()
        workdirs |= {name: bundles[name] for name, fact in facts.items() if fact["missing"]}  # any will do for ours
        probed = probe_all(every).whole()
    except BaseException:
        for host in every:
            host.close()
        raise
    topologies = {topology.host: topology for topology in with_inventory(list(probed.values()), cluster)}
    return Site(hosts, facts, bundles, topologies, python, known, scripts, workdirs)


def bring_code(
    hosts: Sequence[Host], python: str, script: Path, bundles: Mapping[str, str], sync: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Where the script, and with `sync` the folder to run in, lie on each host; our workloads are in our node side."""
    if sync:
        from launcher.hosts.sync import Sync, code_root, read_tree

        root = code_root(script.parent)
        carrier = Sync(read_tree(root))
        folders = on_all(hosts, lambda host: carrier.to(host, python)).whole()
        here = Path.cwd()
        inside = here.relative_to(root) if here.is_relative_to(root) else Path()
        scripts = {name: str(Path(folder) / script.relative_to(root)) for name, folder in folders.items()}
        return scripts, {name: str(Path(folder) / inside) for name, folder in folders.items()}
    if script.parent == WORKLOADS:
        return {name: f"{bundle}/workloads/{script.name}" for name, bundle in bundles.items()}, {}
    return {}, {}


def describe(
    host: Host, python: str, bundles: Mapping[str, str], cluster: SshCluster, script: str, workdir: str
) -> dict[str, Any]:
    """What a host says of itself. Raises CannotActError where it lacks the script or the folder to run in."""
    asked = time.time()
    paths = [script, workdir]
    facts = call(host, python, bundles[host.name], "describe", directory=jobs_directory(cluster), paths=paths)
    facts["clock_offset"] = facts["time"] - (asked + time.time()) / 2
    if script in facts["missing"]:
        raise CannotActError(f"{host.name} has no file {script}", help="--sync sends the code, or share a file system")
    if facts["missing"] and not script.startswith(bundles[host.name]):
        raise CannotActError(
            f"{host.name} has no folder {workdir} to run in",
            help="set workdir: in the inventory, or start it elsewhere",
        )
    return dict(facts)


def local_site(cluster: LocalCluster, names: Sequence[str], script: str) -> Site:
    """This machine under several names; it is looked at once, and only where a vendor's tool is installed."""
    from launcher.agent.check import describe_host
    from launcher.topology.vendors import vendors

    facts = describe_host(jobs_directory(cluster), [script])
    hosts = connect(names, {})
    tools = any(shutil.which(vendor.tool) for vendor in vendors() if vendor.visible)
    topology = probe_one(hosts[names[0]]) if tools else HostTopology(names[0])
    return Site(
        hosts,
        dict.fromkeys(names, facts),
        dict.fromkeys(names, local_bundle()),
        dict.fromkeys(names, topology),
        python_of(cluster),
    )


def probe_one(host: Host) -> HostTopology:
    from launcher.topology.probe import probe

    return probe(host)
