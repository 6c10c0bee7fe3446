"""What the commands do with a job: start it, adopt it, wait for it, stop it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from launcher.common.paths import JobPaths, jobs_root
from launcher.errors import CannotActError
from launcher.hosts.local import LocalHost
from launcher.hosts.node_side import call
from launcher.hosts.protocol import on_all
from launcher.jobs.prepare import Prepared
from launcher.jobs.record import ENDED, JobRecord, read_record, write_record
from launcher.jobs.store import StoredJob, append_event, is_supervised
from launcher.secrets import only_secrets

POLL_S = 0.1
SUPERVISOR_S = 20.0


def start(prepared: Prepared) -> StoredJob:
    """Write the record and detach a supervisor, or submit it to Slurm; secrets go to it in memory."""
    if prepared.script is not None:
        from launcher.jobs.slurm_submit import submit

        return submit(prepared)
    paths = JobPaths(jobs_root() / prepared.record.job)
    write_record(paths.record, prepared.record)
    append_event(paths, "created", job=prepared.record.job)
    settings = prepared.settings
    every = {**settings.inventory_env, **settings.forwarded_env, **settings.command_line_env}
    job = StoredJob(prepared.record, paths)
    _supervise(job, {"secrets": only_secrets(every), "rendezvous": asdict(prepared.rendezvous)})
    return job


def adopt(job: StoredJob) -> None:
    """Give a job without supervisor a new one; returns when it is there. Raises CannotActError."""
    _supervise(job, {}, "adopt")


def _supervise(job: StoredJob, given: Mapping[str, Any], *arguments: str) -> None:
    argv = [sys.executable, "-m", "launcher.jobs.supervisor", str(job.paths.root), *arguments]
    before = read_record(job.paths.record).supervisor
    LocalHost().spawn(argv, input=json.dumps(given).encode(), log=str(job.paths.supervisor_log))
    deadline = time.monotonic() + SUPERVISOR_S
    while (now := read_record(job.paths.record)).supervisor == before and now.state not in ENDED:
        if time.monotonic() > deadline:
            raise CannotActError(f"no supervisor came up for {job.record.job}", help=f"see {job.paths.supervisor_log}")
        time.sleep(POLL_S / 4)


def ensure_supervised(job: StoredJob) -> str:
    """Somebody watches a job that has not ended: its supervisor, on Slurm also we, who ask Slurm now and then.

    Returns why Slurm could not be asked, else nothing.
    """
    if job.record.kind == "slurm":
        from launcher.jobs.slurm_control import refresher

        refresher().refresh([job])
        return refresher().trouble
    if job.record.state not in ENDED and not is_supervised(job.paths):
        adopt(job)
    return ""


def wait(job: StoredJob, patience: float | None = None) -> JobRecord:
    """Wait until the job has ended, adopting it where nobody watches; returns its record.

    Raises CannotActError after `patience` seconds, where given.
    """
    deadline = None if patience is None else time.monotonic() + patience
    while (record := read_record(job.paths.record)).state not in ENDED:
        if deadline is not None and time.monotonic() > deadline:
            raise CannotActError(f"{record.job} is still {record.state} after {patience:g} s", help="dlaunch ps")
        ensure_supervised(StoredJob(record, job.paths))
        time.sleep(POLL_S)
    return record


def stop(job: StoredJob, grace: float) -> JobRecord:
    """Ask the supervisor to stop the job and wait until it has; `grace` seconds are for a checkpoint.

    Of a job that has ended, what may still run of it: on hosts that were not reached then, and where processes could
    not be ended. Raises CannotActError.
    """
    if job.record.state in ENDED and (job.record.unreached or job.record.survivors):
        return _end_the_rest(job)
    if job.record.state not in ENDED:
        if job.record.kind == "slurm" and not is_supervised(job.paths):
            from launcher.jobs.slurm_control import cancel

            return cancel(job)
        job.paths.stop_request.write_text(json.dumps({"grace": grace, "time": time.time()}))
    return wait(job, patience=grace + 90)


def _end_the_rest(job: StoredJob) -> JobRecord:
    """The record then names the hosts that are still not reached and the processes that still live."""
    from launcher.hosts.bundle import put_bundle
    from launcher.jobs.reach import connect_each

    record = job.record
    python = record.nodes[0].python
    names = [*record.unreached, *(survivor.rpartition(":")[0] for survivor in record.survivors)]
    connected = connect_each(list(dict.fromkeys(names)), record.addresses)
    hosts = list(connected.good.values())
    try:
        swept = on_all(hosts, lambda host: call(host, python, put_bundle(host, python), "sweep", job=record.job))
    finally:
        for host in hosts:
            host.close()
    silent = connected.reasons | swept.reasons
    left = [f"{name}:{pid}" for name, answer in swept.good.items() for pid in answer["survivors"]]
    append_event(job.paths, "swept", hosts=list(swept.good), survivors=left, silent=silent)
    write_record(job.paths.record, record.with_(unreached=tuple(silent), survivors=tuple(left)))
    return read_record(job.paths.record)
