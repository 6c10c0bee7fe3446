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
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def node(self, node_rank: int) -> Path:
        return self.root / "nodes" / str(node_rank)

    def agent(self, node_rank: int) -> Path:
        return self.node(node_rank) / "agent.json"

    def agent_log(self, node_rank: int) -> Path:
        return self.node(node_rank) / "agent.log"

    def torchrun_output(self, node_rank: int, attempt: int) -> Path:
        return self.node(node_rank) / f"torchrun-{attempt}.log"

    def torchrun_logs(self, node_rank: int, attempt: int) -> Path:
        """The folder in which torchrun leaves the error files of its ranks."""
        return self.node(node_rank) / f"torchrun-{attempt}"

    def samples(self, node_rank: int) -> Path:
        return self.node(node_rank) / "sample.jsonl"

    def rank(self, rank: int, attempt: int) -> Path:
        """The shim, which runs by its path and imports nothing of ours, spells this and `pid` by itself."""
        return self.root / "ranks" / str(rank) / f"attempt-{attempt}"

    def pid(self, rank: int, attempt: int) -> Path:
        return self.rank(rank, attempt) / "pid"

    def stdout(self, rank: int, attempt: int) -> Path:
        return self.rank(rank, attempt) / "stdout"

    def stderr(self, rank: int, attempt: int) -> Path:
        return self.rank(rank, attempt) / "stderr"

    def progress(self, rank: int, attempt: int) -> Path:
        return self.rank(rank, attempt) / "progress.jsonl"

    def dump(self, rank: int, attempt: int) -> Path:
        """The flight recorder's file of a rank: torch appends the rank to the prefix that the shim gives it."""
        return self.rank(rank, attempt) / f"fr.{rank}"
