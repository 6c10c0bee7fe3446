"""What submitit runs in the batch script. It imports little: the nodes start while the supervisor still loads."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from launcher.common.paths import JobPaths
from launcher.hosts.bundle import shared_bundle
from launcher.slurm.allocation import Allocation
from launcher.slurm.session import Session

if TYPE_CHECKING:
    from launcher.inventory import SlurmCluster


def supervise(directory: str) -> str:
    """Supervise the job of `directory` to its end; returns its state."""
    paths = JobPaths(Path(directory))
    lock = os.open(paths.lock, os.O_RDWR | os.O_CREAT, 0o600)
    with suppress(OSError):  # some shared file systems have no locks
        fcntl.flock(lock, fcntl.LOCK_EX)
    allocation = Allocation.from_environment()
    session = open_session(paths, allocation.job_id, allocation.nodes)
    from launcher.jobs.slurm_supervisor import SlurmSupervisor

    supervisor = SlurmSupervisor(paths, allocation, session)
    supervisor.start()
    return supervisor.record.state


def entry_file(root: Path) -> Path:
    """The cluster's entry as it was at the submission (the inventory may have changed since), and how to start there.

    `{"cluster": {…}, "python": "…", "with_psutil": bool, "step": [srun's options]}`
    """
    return root / "cluster.json"


def recorded_entry(paths: JobPaths) -> SlurmCluster:
    """The entry of `entry_file` with the attributes of the model, which validated it at the submission.

    Not the model itself: building that would cost each start of a job a tenth of a second of CPU.
    """
    return cast("SlurmCluster", SimpleNamespace(**json.loads(entry_file(paths.root).read_text())["cluster"]))


def open_session(paths: JobPaths, job_id: str, nodes: Sequence[str]) -> Session:
    """The step that asks `nodes`, and becomes their agents; the first question is on its way."""
    entry = json.loads(entry_file(paths.root).read_text())
    bundle = shared_bundle(paths.root.parent / ".node-side", entry["with_psutil"])
    session = Session(job_id, nodes, entry["python"], bundle, paths.root / "agents.log", entry["step"])
    script = json.loads(paths.record.read_text())["spec"]["script"]
    session.post("muster", {"job": paths.root.name, "directory": str(paths.root.parent), "paths": [script]})
    return session
