"""Nodes for a look at them: the allocation that we are in, or one that is asked for and given back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from launcher.errors import CannotActError
from launcher.inventory import Cluster, SlurmCluster
from launcher.slurm import client
from launcher.slurm.refusals import refusal
from launcher.slurm.script import entry_flags
from launcher.slurm.values import duration

LOOK_MINUTES = 30  # a short job fits between others
_GRANTED = re.compile(r"Granted job allocation (\d+)")


@contextmanager
def borrowed(cluster: Cluster, hosts: Sequence[str], nodes: int | None = None) -> Iterator[None]:
    """On Slurm, outside of a job: inside, the environment is that of an allocation of `hosts`, or of `nodes` nodes.

    Elsewhere nothing happens. Raises CannotActError in Slurm's words where it grants none.
    """
    if not isinstance(cluster, SlurmCluster) or "SLURM_JOB_ID" in os.environ:
        yield
        return
    job_id = _granted(salloc_argv(cluster, hosts, nodes or cluster.nodes or 1))
    try:
        given = {"SLURM_JOB_ID": job_id, "SLURM_JOB_NODELIST": client.show_job(job_id).nodes}
        os.environ.update(given)
        try:
            yield
        finally:
            for name in given:
                del os.environ[name]
    finally:
        client.cancel(job_id)


def salloc_argv(cluster: SlurmCluster, hosts: Sequence[str], nodes: int) -> list[str]:
    """Whole nodes with what the entry asks for, for a short time. Pure."""
    flags = {**entry_flags(cluster), "job-name": "dlaunch-look", "exclusive": True, "nodes": len(hosts) or nodes}
    if hosts:
        flags["nodelist"] = ",".join(hosts)
    elif cluster.exclude:
        flags["exclude"] = cluster.exclude
    if cluster.time is not None and (duration(cluster.time) or 0) > LOOK_MINUTES * 60:
        flags["time"] = LOOK_MINUTES
    options = [f"--{name}" if value is True else f"--{name}={value}" for name, value in flags.items()]
    return ["salloc", "--no-shell", *options]


def _granted(argv: Sequence[str]) -> str:
    """The id of the allocation; what salloc says while it waits goes to our stderr."""
    if shutil.which(argv[0]) is None:
        raise CannotActError("there is no salloc here", help=client.ON_A_LOGIN_NODE)
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as salloc:
        assert salloc.stderr is not None
        said = []
        try:
            for line in salloc.stderr:
                said.append(line)
                sys.stderr.write(line)
        except BaseException:  # Ctrl-C: salloc takes its request back
            salloc.terminate()
            raise
    found = _GRANTED.search("".join(said))
    if salloc.returncode or not found:
        reason = refusal("".join(said))
        raise CannotActError(f"salloc: {reason.message}", help=reason.help or "sinfo")
    return found[1]
