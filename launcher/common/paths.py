"""JobPaths: the one owner of every path in a job's directory (layout: DESIGN §5)."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path


def home() -> Path:
    """`$DLAUNCH_HOME`, by default `~/.local/state/dlaunch`."""
    return Path(os.environ.get("DLAUNCH_HOME") or Path.home() / ".local" / "state" / "dlaunch")


def kept_name(cluster: str, inventory: str) -> str:
    """Of a file about a cluster: those of the same name in different inventories are different ones."""
    return f"{cluster}-{hashlib.sha256(inventory.encode()).hexdigest()[:8]}.json"


def make_private(folder: Path) -> None:
    """Make `folder` and its missing parents, all 0700 (`Path.mkdir` gives parents the default mode)."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def jobs_root() -> Path:
    return home() / "jobs"


@dataclass(frozen=True)
class JobPaths:
    """Paths of one job; `root` is its directory on the machine that reads or writes."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "job.json"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def supervisor_log(self) -> Path:
        return self.root / "supervisor.log"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def stop_request(self) -> Path:
        """Its presence asks the supervisor to stop the job."""
        return self.root / "stop.json"

    @property
    def bundle(self) -> Path:
        return self.root / "bundle"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def node(self, node_rank: int) -> Path:
        return self.root / "nodes" / str(node_rank)

    def agent(self, node_rank: int) -> Path:
        return self.node(node_rank) / "agent.json"

    def samples(self, node_rank: int) -> Path:
        return self.node(node_rank) / "sample.jsonl"

    def rank(self, rank: int, attempt: int) -> Path:
        return self.root / "ranks" / str(rank) / f"attempt-{attempt}"

    def stdout(self, rank: int, attempt: int) -> Path:
        return self.rank(rank, attempt) / "stdout"

    def stderr(self, rank: int, attempt: int) -> Path:
        return self.rank(rank, attempt) / "stderr"

    def nccl_log(self, rank: int, attempt: int) -> Path:
        return self.rank(rank, attempt) / "nccl.log"

    def progress(self, rank: int, attempt: int) -> Path:
        return self.rank(rank, attempt) / "progress.jsonl"

    def error(self, rank: int, attempt: int) -> Path:
        return self.rank(rank, attempt) / "error.json"

    def flight_recorder(self, rank: int, attempt: int) -> Path:
        """Prefix of the flight recorder's files: torch appends the rank."""
        return self.rank(rank, attempt) / "fr."

    def dump(self, rank: int, attempt: int) -> Path:
        """The flight recorder's file of a rank."""
        return Path(f"{self.flight_recorder(rank, attempt)}{rank}")
