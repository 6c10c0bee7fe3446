"""Asks the hosts of a job for their hardware."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.errors import DlaunchError
from launcher.jobs.record import JobRecord
from tui.screens.topology import host_text, limits
from tui.snapshot import JobInfo


def topology_lines(record: JobRecord, job: JobInfo, hosts: Sequence[str]) -> list[str]:
    """What limits each axis, and each host's matrix with its ranks; a host that fails says so in its place."""
    from launcher.jobs.reach import connect
    from launcher.topology.probe import probe

    lines: list[str] = []
    seen = []
    for name in dict.fromkeys(hosts):
        try:
            (host,) = connect([name], record.addresses).values()
            try:
                seen.append(probe(host))
                lines += host_text(job, seen[-1])
            finally:
                host.close()
        except DlaunchError as error:
            lines += ["", f"{name}: {error}"]
    return [*limits(job, seen), *lines]
