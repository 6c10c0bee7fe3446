"""What is known of one host before a job: the node side's answer (`launcher/agent/inspect.py`) as a typed record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from launcher.common.fields import from_fields
from launcher.common.node_reports.nvidia_smi import SmiReport, parse_query
from launcher.topology.model import HostTopology
from launcher.topology.probe import read_probe

UNLIMITED = -1  # of a resource limit, as the kernel says it


@dataclass(frozen=True)
class Report:
    """Output of one tool; `error` says why there is none, or not all of it."""

    text: str = ""
    error: str = ""


@dataclass(frozen=True)
class Interface:
    up: bool
    gbps: float | None = None
    mtu: int = 1500


@dataclass(frozen=True)
class HostFacts:
    """One host. Sizes in bytes; `limits` are (soft, hard), UNLIMITED for none; `clock_offset` in seconds ahead of this
    machine's clock, known to within `clock_doubt` seconds.

    `resolved`: name -> the host's addresses for it, [] where it knows none, None where it gave no answer in time.
    `ranks`: how many ranks a job would start here.
    """

    host: str
    hostname: str
    topology: HostTopology
    versions: Mapping[str, str]
    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict)
    own_address: str | None = None
    directory: str = ""
    disk_free: int = 0
    not_writable: str = ""
    py_spy: str | None = None
    cpus: int = 1
    memory: int = 0
    load: float = 0.0
    shm: Mapping[str, int] | None = None
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    interfaces: Mapping[str, Interface] = field(default_factory=dict)
    resolved: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    ptrace_scope: int | None = None
    may_trace_others: bool = False
    virtual: bool = False
    translated: Sequence[str] = ()
    rdma: Sequence[str] = ()
    verbs: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    reports: Mapping[str, Report] = field(default_factory=dict)
    clock_offset: float = 0.0
    clock_doubt: float = 0.0
    ranks: int = 1

    @cached_property
    def smi(self) -> SmiReport:
        """`nvidia-smi -q`; without GPUs where the tool is missing or fails."""
        return parse_query(self.reports.get("nvidia-smi", Report()).text)

    @property
    def models(self) -> tuple[str | None, ...]:
        """Models of the devices in the vendor's order: hosts of one kind have the same."""
        return tuple(device.model for device in self.topology.devices)


def _topology(probe: Mapping[str, str], host: str) -> HostTopology:
    topology = read_probe(probe["text"], host)
    return replace(topology, gaps=(*topology.gaps, probe["error"])) if "error" in probe else topology


def read_facts(host: str, raw: Mapping[str, Any], asked: float, answered: float, env: Mapping[str, str]) -> HostFacts:
    """The node side's answer; it was asked and answered at these times of our clock. `env`: what a job adds there."""
    versions = dict(raw["versions"])
    facts: dict[str, Any] = {
        "topology": _topology(raw["probe"], host),
        "versions": versions,
        "interfaces": {name: Interface(**about) for name, about in raw["interfaces"].items()},
        "limits": {name: tuple(pair) for name, pair in raw["limits"].items()},
        "environment": {**raw["environment"], **env},
        "reports": {name: Report(**about) for name, about in raw["reports"].items()},
        "clock_offset": raw["time"] - (asked + answered) / 2,
        "clock_doubt": (answered - asked) / 2,
    }
    found = from_fields(HostFacts, raw, host=host, **facts)
    if found.smi.driver:
        versions["driver"] = found.smi.driver
    if found.smi.cuda:
        versions["cuda"] = found.smi.cuda
    return found
