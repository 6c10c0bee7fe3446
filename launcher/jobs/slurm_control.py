"""Slurm jobs from outside: records brought up to what Slurm says, jobs taken out of its queue."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from launcher.errors import CannotActError
from launcher.jobs.record import ENDED, JobRecord, read_record, write_record
from launcher.jobs.result import read_statuses
from launcher.jobs.store import StoredJob, append_event, is_supervised
from launcher.slurm import client
from launcher.slurm.client import FIRST_PAUSE_S, Poller
from launcher.slurm.lifecycle import News, news
from launcher.slurm.status import JobStatus

_FOREIGN_STATES = {"waiting": "pending", "running": "running", "ending": "stopping"}


@dataclass
class Refresher:
    """One poll for all jobs that are looked at; `trouble` says why Slurm could not be asked, else it is empty."""

    poller: Poller
    trouble: str = ""

    def refresh(self, jobs: Iterable[StoredJob]) -> None:
        """Write the news of those jobs that have not ended by their own records."""
        waiting = [job for job in jobs if job.record.slurm_id and job.record.state not in ENDED]
        sight = self.poller.look()
        if any(_own(job.record, sight.jobs) is None for job in waiting):
            sight = self.poller.look(oldest=FIRST_PAUSE_S)  # it may have been submitted since the last look
        self.trouble = sight.trouble
        if sight.trouble or not waiting:
            return
        statuses = {job.record.job: _own(job.record, sight.jobs) for job in waiting}
        gone = [job for job in waiting if statuses[job.record.job] is None]
        if gone:
            try:
                known = {status.id: status for status in client.accounting([str(job.record.slurm_id) for job in gone])}
            except CannotActError as error:
                self.trouble = error.message
                return
            statuses.update({job.record.job: _own(job.record, known) for job in gone})
        for job in waiting:
            _record(job, statuses[job.record.job])


@cache
def refresher() -> Refresher:
    """The one of this process: all that wait here share a poll."""
    return Refresher(Poller(getpass.getuser()))


def foreign_rows(known: Refresher, jobs: Iterable[StoredJob], cluster: str) -> list[dict[str, Any]]:
    """Rows of `ps` for the user's living jobs in the queue that dlaunch did not start, as `slurm:<id>`."""
    ours = {job.record.job for job in jobs}
    return [
        {
            "job": f"slurm:{status.id}",
            "name": status.name,
            "cluster": cluster,
            "state": _FOREIGN_STATES.get(status.state.phase, status.state.name.lower()),
            "nodes": status.node_count,
            "ranks": None,
            "started": status.started if status.state.phase == "running" else None,
            "reason": news(status, (), 0, False).reason if status.state.phase == "waiting" else status.nodes,
        }
        for status in known.poller.look().jobs.values()
        if status.name not in ours and not status.state.ended
    ]


def cancel(job: StoredJob) -> JobRecord:
    """Let Slurm end a job that waits, or whose supervisor is gone: its agents hear SIGTERM. Raises CannotActError."""
    client.cancel(str(job.record.slurm_id))
    record = read_record(job.paths.record)
    if record.state not in ENDED:
        record = record.with_(state="stopped", reason="cancelled on request", ended=time.time(), exit_status=1)
        write_record(job.paths.record, record)
        append_event(job.paths, "stopped", reason=record.reason)
    return record


def _own(record: JobRecord, jobs: dict[str, JobStatus]) -> JobStatus | None:
    """Slurm's word on our job: an id that now belongs to a job of another name is one of a younger cluster."""
    status = jobs.get(str(record.slurm_id))
    return status if status is not None and status.name == record.job else None


def _record(job: StoredJob, status: JobStatus | None) -> None:
    """A supervisor that lives (it holds the job's lock) writes the record itself, unless Slurm has ended the job."""
    record = read_record(job.paths.record)
    if record.state in ENDED:
        return
    latest = news(status, read_statuses(record, job.paths), len(record.nodes), record.started is not None)
    changed = _changed(record, latest)
    if changed is not None and (changed.state in ENDED or not is_supervised(job.paths)):
        write_record(job.paths.record, changed)
        append_event(job.paths, changed.state, reason=changed.reason, by="Slurm")


def _changed(record: JobRecord, latest: News) -> JobRecord | None:
    """The new record, or None where nothing is new. A job that runs is its supervisor's to describe."""
    if latest.state == "running":
        return None
    if latest.state == "pending":
        same = record.state == "pending" and record.reason == latest.reason
        return None if same else record.with_(state="pending", reason=latest.reason)
    status = 0 if latest.state == "succeeded" else 1
    return record.with_(state=latest.state, reason=latest.reason, ended=latest.ended or time.time(), exit_status=status)
