"""The jobs on record on this machine: new ids, listing, and finding one by what the user types."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from launcher.common.paths import JobPaths, jobs_root
from launcher.errors import InputError
from launcher.jobs.record import ENDED, JobRecord, read_record


def new_job_id(name: str) -> str:
    """`name-yymmdd-hhmmss-xxxx`; what is no letter, digit, dot or underscore becomes a hyphen."""
    clean = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "job"
    return f"{clean[:40]}-{time.strftime('%y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


@dataclass(frozen=True)
class StoredJob:
    """A job on record with the paths of its directory."""

    record: JobRecord
    paths: JobPaths


def all_jobs() -> list[StoredJob]:
    """Every readable record, oldest first."""
    root = jobs_root()
    found = []
    with suppress(FileNotFoundError):
        for directory in root.iterdir():
            with suppress(OSError, InputError):
                paths = JobPaths(directory)
                found.append(StoredJob(read_record(paths.record), paths))
    return sorted(found, key=lambda job: job.record.created)


def find_job(text: str) -> StoredJob:
    """The job that `text` means: its id, an unambiguous prefix, its name (the newest of that name), `last`, a Slurm id.

    Raises InputError naming the candidates.
    """
    paths = JobPaths(jobs_root() / text)
    if "/" not in text and paths.record.is_file():
        return StoredJob(read_record(paths.record), paths)
    jobs = all_jobs()
    if not jobs:
        raise InputError("no job on record", where="JOB", help="dlaunch run SCRIPT")
    if text == "last":
        return jobs[-1]
    slurm_id = text.removeprefix("slurm:")
    named = [job for job in jobs if job.record.name == text or slurm_id == job.record.slurm_id]
    if named:
        return named[-1]
    matches = [job for job in jobs if job.record.job.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(job.record.job for job in matches[-3:])
        raise InputError(f"{text!r} means {len(matches)} jobs: {names}", where="JOB", help="type more of its id")
    raise InputError(f"no job {text!r}", where="JOB", help="dlaunch ps")


def is_supervised(paths: JobPaths) -> bool:
    """Whether a supervisor holds the job's lock: the kernel frees it however the supervisor ends."""
    try:
        descriptor = os.open(paths.lock, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # also where the file system has no locks: then nobody can tell, and none is adopted
        return True
    finally:
        os.close(descriptor)
    return False


def visible_state(job: StoredJob) -> str:
    """The recorded state, or `unsupervised` where nobody watches a job that has not ended."""
    if job.record.state in ENDED or job.record.state == "pending" or is_supervised(job.paths):
        return job.record.state
    return "unsupervised"


def append_event(paths: JobPaths, event: str, **details: Any) -> None:
    """Add one line to events.jsonl."""
    line = json.dumps({"time": time.time(), "event": event, **details}, default=str)
    with paths.events.open("a") as file:
        file.write(line + "\n")


def read_events(paths: JobPaths) -> Iterator[dict[str, Any]]:
    with suppress(FileNotFoundError):
        for line in paths.events.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                yield json.loads(line)
