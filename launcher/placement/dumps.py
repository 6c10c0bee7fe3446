"""What the flight recorders of a job's ranks kept, fetched from its hosts: from it the job's traffic is counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.common.paths import JobPaths
from launcher.common.unpickle import RefusedPickleError, loads
from launcher.errors import CannotActError
from launcher.jobs.reach import connect_job
from launcher.jobs.store import find_job
from launcher.placement.traffic import Counted, count
from launcher.spec import MeshSpec

MOST_RANKS = 16  # they do the same as the others


def counted_in_job(name: str) -> Counted:
    """What the ranks of a job dumped. Raises InputError (no such job) and CannotActError (nothing was dumped)."""
    record = find_job(name).record
    hosts = connect_job(record)
    dumps = {}
    try:
        for rank in record.ranks[:MOST_RANKS]:
            node = record.nodes[rank.node_rank]
            paths = JobPaths(Path(node.directory))
            prefix = str(paths.dump(rank.rank, record.attempt))
            progress = str(paths.progress(rank.rank, record.attempt))
            with suppress(OSError, RefusedPickleError):
                read = hosts[node.host].read
                dumps[rank.rank] = (loads(read(prefix)), view_of(read, prefix), list(step_times(read, progress)))
    finally:
        for host in hosts.values():
            host.close()
    if not dumps:
        help = f"ddoctor collect {record.job} while it runs makes its ranks dump"
        raise CannotActError(f"no dump of the flight recorder of {record.job}", help=help)
    return count(MeshSpec(dict(record.mesh)), dumps, record.job)


def view_of(read: Callable[[str], bytes], prefix: str) -> Any:
    with suppress(OSError, ValueError):
        return json.loads(read(f"{prefix}.view.json"))
    return None


def step_times(read: Callable[[str], bytes], progress: str) -> Iterator[float]:
    with suppress(OSError):
        for line in read(progress).splitlines():
            with suppress(ValueError, KeyError, TypeError):
                yield float(json.loads(line)["time"])
