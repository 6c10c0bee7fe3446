"""The checks: each is one pure function from facts to findings. A new check is one function and one line here.

A check that could not look yields `unknown(…)`: it is kept apart from what was found, and never passes for healthy.
A package that is installed beside dlaunch names such functions as entry points of the groups `dlaunch.checks.of_host`
and `dlaunch.checks.of_all`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from launcher.common.finding import Finding, unknown
from launcher.common.plugins import PluginFailure, guarded, plugins, telling
from launcher.preflight.checks import clock, collect, devices, kernel, limits, links, names, nics, pci, peers
from launcher.preflight.facts import HostFacts

T = TypeVar("T")
Check = Callable[[T], Iterable[Finding]]
OfHost = Check[HostFacts]
OfAll = Check[Sequence[HostFacts]]

OF_HOST: Sequence[OfHost] = (
    devices.vendor_tool,
    devices.gaps,
    devices.idle,
    devices.memory_held,
    devices.errors,
    devices.settings,
    links.pcie_width,
    kernel.events,
    pci.access_control,
    pci.translation,
    nics.verbs,
    nics.named_interfaces,
    limits.shared_memory,
    limits.open_files,
    limits.locked_memory,
    limits.disk,
    names.own_name,
    collect.flight_recorder,
    collect.tracing,
    peers.torch_present,
)
OF_ALL: Sequence[OfAll] = (
    clock.skew,
    devices.counts,
    devices.clocks,
    links.missing,
    names.resolution,
    nics.counts,
    nics.down,
    nics.slow,
    limits.lower_than_peers,
    collect.py_spy,
    peers.versions,
    peers.environment,
)


def run_checks(hosts: Sequence[HostFacts]) -> list[Finding]:
    """Every finding of every check; each names its hosts."""
    of_host, of_all = _checks()
    found = [finding for check in of_host for facts in hosts for finding in check(facts)]
    return found + [finding for check in of_all if hosts for finding in check(hosts)]


@cache
def _checks() -> tuple[Sequence[OfHost], Sequence[OfAll]]:
    """Ours, then those of plug-ins."""
    of_host = (*OF_HOST, *_of_plugins("dlaunch.checks.of_host", _name))
    return of_host, (*OF_ALL, *_of_plugins("dlaunch.checks.of_all", _names))


def _name(facts: HostFacts) -> list[str]:
    return [facts.host]


def _names(hosts: Sequence[HostFacts]) -> list[str]:
    return [facts.host for facts in hosts]


def _of_plugins(group: str, names: Callable[[T], list[str]]) -> Iterator[Check[T]]:
    """Checks of plug-ins; what one that fails would have found is unknown of the hosts that were looked at."""

    def unseen(failure: PluginFailure, looked_at: T) -> Finding:
        return unknown(f"what {failure.origin} would find: {failure.why}", hosts=names(looked_at))

    found, failed = plugins(group, _as_check)
    yield from (guarded(plugin.value, plugin.origin, unseen) for plugin in found)
    yield from (telling(failure, unseen) for failure in failed)


def _as_check(loaded: object) -> Check[Any]:
    if callable(loaded):
        return loaded
    raise TypeError("it must be a function from facts to findings")
