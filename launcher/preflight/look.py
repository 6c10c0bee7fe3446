"""Look at the hosts of a cluster, all at once; a host that cannot be looked at delays and hides no other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from launcher.errors import CannotActError
from launcher.hosts.bundle import bundle_names, local_bundle, put_bundle, shared_bundle
from launcher.hosts.node_side import call
from launcher.hosts.protocol import Answers, Host, on_all
from launcher.inventory import Cluster, LocalCluster, SshCluster
from launcher.jobs.reach import addresses, connect_each, jobs_directory, python_of
from launcher.preflight.facts import HostFacts, read_facts
from launcher.topology.probe import probe_script

LOOK_TIMEOUT_S = 90.0
AT_ONCE = 64  # hosts; they do the work, we only wait
THIS_MACHINE = "localhost"


@dataclass
class Sight:
    """Hosts that were looked at, by name, in the inventory's order; `silent` says of the others why not."""

    names: Sequence[str]
    python: str
    hosts: dict[str, Host] = field(default_factory=dict)
    bundles: dict[str, str] = field(default_factory=dict)
    facts: dict[str, HostFacts] = field(default_factory=dict)
    silent: dict[str, CannotActError] = field(default_factory=dict)

    def ask(
        self, names: Sequence[str], command: str, arguments: Mapping[str, Mapping[str, Any]], timeout: float
    ) -> Answers[Any]:
        """Run a command of the node side on hosts at the same moment."""
        return on_all(
            [self.hosts[name] for name in names],
            lambda host: call(host, self.python, self.bundles[host.name], command, timeout, **arguments[host.name]),
            workers=len(names) or 1,
        )


@contextmanager
def looked_at(
    cluster: Cluster, names: Sequence[str], remembered: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Sight]:
    """The hosts `names` with their facts; closed at the end. Raises CannotActError outside of a Slurm allocation.

    `remembered`: where our node side lay on hosts at an earlier look, which saves asking for it.
    """
    sight = Sight(names, python_of(cluster))
    try:
        _connect(sight, cluster)
        _look(sight, cluster, remembered)
        yield sight
    finally:
        for host in sight.hosts.values():
            host.close()


def hosts_of(cluster: Cluster) -> list[str]:
    """Every host, spares too; simulated nodes are one machine. Raises CannotActError outside of a Slurm allocation."""
    return list(addresses(cluster)) or [THIS_MACHINE]


def _connect(sight: Sight, cluster: Cluster) -> None:
    answers = connect_each(sight.names, addresses(cluster))
    sight.hosts.update(answers.good)
    sight.silent.update(answers.failed)


def _look(sight: Sight, cluster: Cluster, remembered: Mapping[str, str]) -> None:
    """Bring our node side to each host and ask for its facts."""
    bring = _bringer(sight, cluster)
    current = [path for path in remembered.values() if PurePosixPath(path).name in bundle_names()]
    about = {"directory": jobs_directory(cluster), "names": list(sight.names), "probe": probe_script()}

    def ask(host: Host, bundle: str) -> HostFacts:
        asked = time.time()
        raw = call(host, sight.python, bundle, "inspect", LOOK_TIMEOUT_S, **about)
        facts = read_facts(host.name, raw, asked, time.time(), cluster.env)
        sight.bundles[host.name] = bundle
        return replace(facts, ranks=cluster.nproc_per_node or len(facts.topology.devices) or 1)

    def one(host: Host) -> HostFacts:
        if remembered.get(host.name) in current:
            with suppress(CannotActError):  # it was removed there, or something else that is told below
                return ask(host, remembered[host.name])
        return ask(host, bring(host))

    answers = on_all(list(sight.hosts.values()), one, AT_ONCE)
    sight.facts.update(answers.good)
    sight.silent.update(answers.failed)


def _bringer(sight: Sight, cluster: Cluster) -> Callable[[Host], str]:
    """How a host gets our node side: host -> its folder there."""
    if isinstance(cluster, SshCluster):
        return lambda host: put_bundle(host, sight.python)
    if isinstance(cluster, LocalCluster):
        folder = local_bundle()
    else:
        folder = shared_bundle(Path(jobs_directory(cluster)) / ".node-side", sight.python != sys.executable)
    return lambda host: folder
