"""The allocation seen from inside its batch script."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from launcher.errors import CannotActError
from launcher.slurm.client import hostnames


@dataclass(frozen=True)
class Allocation:
    """A running job: `nodes` as Slurm lists them; `restarts` counts how often Slurm has requeued it."""

    job_id: str
    nodes: tuple[str, ...]
    restarts: int = 0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Allocation:
        """Raises CannotActError outside of a job."""
        if "SLURM_JOB_ID" not in environ:
            raise CannotActError("this is no Slurm job", help="dlaunch run --cluster NAME")
        nodes = tuple(hostnames(environ["SLURM_JOB_NODELIST"]))
        return cls(environ["SLURM_JOB_ID"], nodes, int(environ.get("SLURM_RESTART_COUNT", "0")))
