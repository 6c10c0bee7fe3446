"""Asks the hosts of a job for their hardware."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.errors import DlaunchError
from launcher.jobs.record import JobRecord
from tui.screens.topology import host_text
from tui.snapshot import JobInfo


def topology_lines(record: JobRecord, job: JobInfo, hosts: Sequence[str]) -> list[str]:
    """The hosts' matrices with the ranks over them; a host that fails says so in its place."""
    from launcher.jobs.reach import connect
    from launcher.topology.probe import probe

    lines: list[str] = []
    for name in dict.fromkeys(hosts):
        try:
            (host,) = connect([name], record.addresses).values()
            try:
                lines += host_text(job, probe(host))
            finally:
                host.close()
        except DlaunchError as error:
            lines += ["", f"{name}: {error}"]
    return lines
