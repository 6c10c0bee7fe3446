"""The checks: each is one pure function from facts to findings. A new check is one function and one line here.

A check that could not look yields `unknown(…)`: it is kept apart from what was found, and never passes for healthy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from launcher.common.finding import Finding
from launcher.preflight.checks import clock, collect, devices, kernel, limits, links, names, nics, pci, peers
from launcher.preflight.facts import HostFacts

OfHost = Callable[[HostFacts], Iterable[Finding]]
OfAll = Callable[[Sequence[HostFacts]], Iterable[Finding]]

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
    found = [finding for check in OF_HOST for facts in hosts for finding in check(facts)]
    return found + [finding for check in OF_ALL if hosts for finding in check(hosts)]
