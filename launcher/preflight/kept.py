"""Results kept for a while, and what the hosts had when they were last sound: a file for each cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from launcher.common.paths import home, kept_name
from launcher.errors import InputError
from launcher.hosts.local import LocalHost
from launcher.inventory import Cluster, LocalCluster, SshCluster
from launcher.preflight.checks.drift import Snapshot
from launcher.preflight.result import Result

EXPIRY_S = 12 * 3600.0


def kept_file(cluster: str, inventory: str) -> Path:
    return home() / "preflight" / kept_name(cluster, inventory)


def keep(
    result: Result, inventory: str, baseline: Mapping[str, Snapshot], bundles: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write a result with what the hosts had, and where our node side lies on them."""
    text = json.dumps({"schema": 1, **result.to_json(), "baseline": baseline, "bundles": dict(bundles)})
    LocalHost().write(str(kept_file(result.cluster, inventory)), text.encode())


def read_kept(cluster: str, inventory: str) -> dict[str, Any]:
    """The document of the last call; empty where there is none or it is damaged."""
    try:
        return dict(json.loads(kept_file(cluster, inventory).read_text()))
    except (OSError, ValueError):
        return {}


def exclusions(name: str, cluster: Cluster, inventory: str, now: float) -> list[str]:
    """The hosts that the last preflight did not find good: `dlaunch run --exclude-bad` leaves them out.

    Of an SSH cluster also those that it did not look at. Raises InputError where no result is kept, or it has expired,
    or no host is left.
    """
    help = f"dlaunch preflight --cluster {name}"
    kept = read_kept(name, inventory)
    if not kept:
        raise InputError(f"no preflight of cluster {name} is kept", where="--exclude-bad", help=help)
    if kept["expires"] < now:
        hours = (now - kept["time"]) / 3600
        raise InputError(f"the preflight of {name} is {hours:.0f} h old", where="--exclude-bad", help=help)
    states = {host["host"]: host["verdict"] for host in kept["hosts"]}
    if "good" not in states.values():
        raise InputError(f"the last preflight found no good host in {name}", where="--exclude-bad", help=help)
    known = [entry.name for entry in cluster.hosts] if isinstance(cluster, SshCluster) else list(states)
    return [] if isinstance(cluster, LocalCluster) else [host for host in known if states.get(host) != "good"]
