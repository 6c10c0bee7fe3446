"""Why the rank or host that comes last is late, where its host tells: clock, network, GPUDirect RDMA."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import KernelRecord, LogEvent
from doctor.rules import Rule
from doctor.rules.events import events_of
from doctor.rules.fleet import fleet_of
from doctor.rules.node_reports import lists, printed, reports
from doctor.rules.node_tools import MANY_LOSSES
from launcher.common.finding import Evidence, Finding
from launcher.common.node_reports.infiniband import LOSS_COUNTERS, IbCounter, IbPort
from launcher.common.node_reports.nvidia_smi import CsvTable, number

NETWORK_EVENTS = ("ib_port_error", "ib_gid_change", "ib_completion", "ib_fatal_event", "ofi_completion")
SLOW_CLOCK = 0.8  # of the median clock of all devices
BUSY = 50.0  # percent of utilisation above which a low clock is no idling
_CLOCKS = ("clocks.sm", "clocks.current.sm", "clocks.gr", "clocks.current.graphics")
_IN_FILE_NAME = r"(?:^|[^\w.]){}(?:$|[^\w])"
CAUSES: Mapping[str, tuple[str, str]] = {
    "straggler.clock": (
        "its devices run at a lower clock",
        "look at nvidia-smi -q -d PERFORMANCE,CLOCK of that host: power cap, heat, application clocks",
    ),
    "straggler.network": (
        "its network has faults",
        "look at the adapter, cable and switch port of that host (counters twice, some seconds apart)",
    ),
    "straggler.gdr": (
        "it sends without GPUDirect RDMA",
        "load nvidia-peermem there, or a kernel with DMA-BUF, as on the other hosts",
    ),
}


@dataclass(frozen=True)
class _Sign:
    """What a host shows that makes it slow."""

    code: str
    evidence: Evidence


def explained(finding: Finding, evidence: EvidenceSet) -> Finding:
    """The same straggler by its cause, where a sign stands in the evidence of its ranks or hosts."""
    for sign in _signs(finding, evidence):
        what, fix = CAUSES[sign.code]
        return replace(
            finding,
            code=sign.code,
            cause=f"{finding.cause.rstrip('.')}; {what}.",
            fix=fix,
            evidence=(sign.evidence, *finding.evidence),
        )
    return finding


def _signs(finding: Finding, evidence: EvidenceSet) -> Iterator[_Sign]:
    hosts = evidence.once(fleet_of).hosts_of(finding.ranks)

    def is_theirs(event: LogEvent) -> bool:
        return event.origin.host in hosts or event.origin.rank in finding.ranks

    for record in evidence.of(KernelRecord):
        if record.event.kind == "thermal" and record.host in hosts:
            yield _Sign("straggler.clock", Evidence("kernel", record.where, record.event.text))
    for one in slow_clocks(evidence):
        if _names(one.evidence[0].where, hosts):
            yield _Sign("straggler.clock", one.evidence[0])
    for event in events_of(evidence, *NETWORK_EVENTS):
        if is_theirs(event):
            yield _Sign("straggler.network", Evidence("log", event.where, event.text))
    yield from _ports(hosts, evidence)
    able = {event.origin.host for event in events_of(evidence, "gdr_enabled")}
    for event in events_of(evidence, "gdr_disabled"):
        if is_theirs(event) and event.origin.host not in able and able:
            yield _Sign("straggler.gdr", Evidence("log", event.where, event.text))


def _names(where: str, hosts: Collection[str]) -> bool:
    """Whether a file's path holds the name of one of the hosts as a word."""
    return any(re.search(_IN_FILE_NAME.format(re.escape(host)), where) for host in hosts)


def _ports(hosts: Collection[str], evidence: EvidenceSet) -> Iterator[_Sign]:
    """Ports that are down and counters of losses in files that bear the host's name."""
    for where, counters in lists(evidence, "ib_counters", IbCounter):
        for one in counters if _names(where, hosts) else ():
            if one.name in LOSS_COUNTERS and one.value >= MANY_LOSSES:
                yield _Sign(
                    "straggler.network", Evidence("node_report", where, f"{one.device} {one.name} {one.value:,}")
                )
    for where, ports in lists(evidence, "ib_ports", IbPort):
        for port in ports if _names(where, hosts) else ():
            if not port.up:
                yield _Sign("straggler.network", Evidence("node_report", where, f"{port.device} is {port.state}"))


def slow_clocks(evidence: EvidenceSet) -> list[Finding]:
    """Busy devices whose clock is far below the others' (`nvidia-smi --query-gpu=…,clocks.sm,utilization.gpu`)."""
    clocks: list[tuple[str, str, float]] = []
    for where, table in reports(evidence, "gpus", CsvTable):
        for row in range(len(table.rows)):
            clock = next((value for name in _CLOCKS if (value := number(table.value(row, name))) is not None), None)
            if clock is not None and (number(table.value(row, "utilization.gpu")) or 0.0) >= BUSY:
                clocks.append((where, table.value(row, "index") or str(row), clock))
    usual = median([clock for *_, clock in clocks]) if len(clocks) > 2 else 0.0
    return [
        printed(
            where,
            f"GPU {index}: {clock:.0f} MHz",
            "straggler.clock",
            f"GPU {index} ({where}) works at {clock:.0f} MHz where the others work at {usual:.0f}: it computes "
            "slower and all wait for it.",
            CAUSES["straggler.clock"][1],
            0.8,
            "warning",
            gpu=index,
            mhz=clock,
            usual_mhz=usual,
        )
        for where, index, clock in clocks
        if clock < SLOW_CLOCK * usual
    ]


RULES = (Rule(("straggler.clock",), ("straggler",), slow_clocks),)
