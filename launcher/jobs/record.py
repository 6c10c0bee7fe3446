"""job.json: what a job is, where its ranks are, and how it stands. Written by atomic rename, read by everybody."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from launcher.common.binding import PlannedRank
from launcher.common.fields import from_fields
from launcher.common.paths import make_private
from launcher.errors import InputError
from launcher.render import NodePlan, Settings
from launcher.spec import format_coordinate

State = Literal["pending", "starting", "running", "stopping", "succeeded", "failed", "stopped"]
ENDED: frozenset[str] = frozenset({"succeeded", "failed", "stopped"})


@dataclass(frozen=True)
class RankRecord:
    """Where a rank is planned to run."""

    rank: int
    node_rank: int
    local_rank: int
    host: str
    coordinate: Mapping[str, int]
    device: str | None = None  # UUID

    @property
    def label(self) -> str:
        return format_coordinate(self.coordinate)


@dataclass(frozen=True)
class Process:
    """A process that is identified beyond reuse of its pid."""

    host: str
    pid: int
    start_time: float  # seconds since the epoch, as psutil gives it


@dataclass(frozen=True)
class Failure:
    """The first failure: the rank that caused the end, not its victims."""

    rank: int | None
    host: str | None
    error: str
    traceback: str = ""
    victims: Sequence[int] = ()
    exit_status: int | None = None  # as a shell says it: 128 + n for a death by signal n


@dataclass(frozen=True)
class JobRecord:
    """The whole of job.json."""

    job: str
    name: str
    cluster: str
    kind: Literal["local", "ssh", "slurm"]
    state: State
    created: float
    spec: Mapping[str, Any]
    mesh: Mapping[str, int]
    nodes: Sequence[NodePlan] = ()
    ranks: Sequence[RankRecord] = ()
    attempt: int = 0
    started: float | None = None
    ended: float | None = None
    reason: str = ""
    supervisor: Process | None = None
    slurm_id: str | None = None
    inventory: str = ""  # the file that described the cluster
    settings: Settings = field(default_factory=Settings)  # secrets are masked
    addresses: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # how each host is reached, spares too
    spares: Sequence[str] = ()
    unreached: Sequence[str] = ()  # hosts that could not be told to end their part
    survivors: Sequence[str] = ()  # processes that could not be ended, as `host:pid`
    first_failure: Failure | None = None
    exit_status: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {"schema": 1, **asdict(self)}

    def planned_ranks(self) -> list[PlannedRank]:
        """The place of each rank, with its binding where the plan has one."""
        bindings = {(node.node_rank, binding.local_rank): binding for node in self.nodes for binding in node.bindings}
        return [
            PlannedRank(rank.rank, rank.host, rank.label, bindings.get((rank.node_rank, rank.local_rank)))
            for rank in self.ranks
        ]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> JobRecord:
        """Raises KeyError or TypeError where the document is not of this form; unknown keys are passed over."""
        supervisor, failure = document.get("supervisor"), document.get("first_failure")
        return from_fields(
            cls,
            document,
            nodes=tuple(NodePlan.from_json(node) for node in document.get("nodes", ())),
            ranks=tuple(from_fields(RankRecord, rank) for rank in document.get("ranks", ())),
            settings=from_fields(Settings, document.get("settings", {})),
            supervisor=from_fields(Process, supervisor) if supervisor else None,
            first_failure=from_fields(Failure, failure) if failure else None,
        )

    def with_(self, **changes: Any) -> JobRecord:
        return replace(self, **changes)


def write_record(path: Path, record: JobRecord) -> None:
    """Write by atomic rename: a reader sees the old document or the new one, never half of one."""
    make_private(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(record.to_json(), default=str))
    draft.chmod(0o600)
    draft.replace(path)


def read_record(path: Path) -> JobRecord:
    """Raises FileNotFoundError, or InputError naming the file when it does not hold a job.

    A file that was not replaced since gives the same record again: those who watch jobs ask every second.
    """
    found = path.stat()
    return _parsed(path, found.st_ino, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=256)
def _parsed(path: Path, *_version: int) -> JobRecord:
    text = path.read_text(errors="replace")
    try:
        return JobRecord.from_json(json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"not a job's record: {error}", where=str(path), help="dlaunch ps") from error
