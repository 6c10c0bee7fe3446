"""Where the ranks of a job are, against the plan: what their agents tell after the start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from launcher.common.agent_status import AgentStatus
from launcher.common.binding import RankReport
from launcher.common.finding import Finding
from launcher.common.verify import verify
from launcher.jobs.record import JobRecord


def reports(statuses: Sequence[AgentStatus]) -> list[RankReport]:
    """What the ranks that have a process show of themselves."""
    return [rank.report(status.host) for status in statuses for rank in status.ranks if rank.pid is not None]


def differences(record: JobRecord, statuses: Sequence[AgentStatus]) -> list[Finding]:
    """A finding for each way in which ranks are elsewhere than planned."""
    return verify(record.planned_ranks(), reports(statuses)) if is_bound(record) else []


def is_bound(record: JobRecord) -> bool:
    """Whether the plan gives its ranks devices or CPUs."""
    return any(node.bindings for node in record.nodes)


def documents(record: JobRecord, statuses: Sequence[AgentStatus]) -> list[dict[str, Any]]:
    """For each rank its host, coordinate and binding by the plan, and the device and CPUs that it shows."""
    shown = {report.rank: report for report in reports(statuses)}
    return [
        {
            "rank": planned.rank,
            "host": planned.host,
            "coordinate": planned.coordinate,
            "device": binding.handle,
            "bdf": binding.bdf,
            "numa": binding.numa,
            "cpus": binding.cpus,
            "nic": binding.nic,
            "shown": None if (report := shown.get(planned.rank)) is None else vars(report),
        }
        for planned in record.planned_ranks()
        if (binding := planned.binding)
    ]


def lines(record: JobRecord, statuses: Sequence[AgentStatus]) -> list[str]:
    """For people, once the ranks run: all as planned, or what differs. Nothing where nothing was bound."""
    found = differences(record, statuses)
    if found:
        return [f"warning: {finding.cause} ({finding.code}); {finding.fix}" for finding in found]
    known = [report for report in reports(statuses) if report.device or report.cpus]
    return [f"binding: {len(known)} of {len(record.ranks)} ranks are as planned"] if is_bound(record) else []
