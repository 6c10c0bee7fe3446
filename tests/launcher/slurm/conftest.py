"""One cluster for all lab tests of this folder, without accounting; and the login node's point of view."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import namespaces
from tests.lab.namespaces import wait_until
from tests.lab.slurm import SlurmLab
from tests.lab.slurm_config import ClusterShape

LEAVES = (("n1", "n3"), ("n2", "n4"))  # so that the order of the switches is not that of the names


@pytest.fixture(scope="session")
def lab(slurm_lab_ready: None) -> Iterator[SlurmLab]:
    with SlurmLab(ClusterShape(accounting=False, leaves=LEAVES)) as raised:
        yield raised


@pytest.fixture
def login(lab: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmLab]:
    """This process sees the cluster as the login node does."""
    for name, value in lab.env.items():
        monkeypatch.setenv(name, value)
    with namespaces.entered(lab.network.namespace("login")):
        yield lab


@dataclass
class Bench:
    """A folder on the shared file system from which dlaunch is used, with an inventory and a home of its own."""

    lab: SlurmLab
    folder: Path

    def inventory(self, **keys: Any) -> None:
        entry = {
            "kind": "slurm",
            "partition": "main",
            "nodes": 2,
            "nproc_per_node": 1,
            "directory": str(self.folder / "jobs"),
            **keys,
        }
        clusters = {"hpc": entry, "here": {"kind": "local", "nodes": 4}}
        (self.folder / "inventory.yaml").write_text(yaml.safe_dump({"default": "hpc", "clusters": clusters}))

    @property
    def env(self) -> dict[str, str]:
        return {"DLAUNCH_HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1"}

    def dlaunch(self, *argv: str, timeout: float = 120, **options: Any) -> subprocess.CompletedProcess[str]:
        done = self.lab.run_on_login(
            ["dlaunch", *argv], env=self.env, cwd=self.folder, check=False, timeout=timeout, **options
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def start(self, script: str, *argv: str, torchrun: bool = False) -> Job:
        """`dlaunch run --detach`; without `torchrun`, which only costs time where the ranks need no torch."""
        how = () if torchrun else ("--no-torchrun",)
        done = self.dlaunch("run", "--detach", "--json", *how, script, *argv)
        assert done.returncode == 0, done.stderr
        return Job(self, json.loads(done.stdout)["job"])


@dataclass
class Job:
    """A job as its user sees it."""

    bench: Bench
    id: str
    jobs: Path | None = None

    @property
    def directory(self) -> Path:
        return (self.jobs or self.bench.folder / "jobs") / self.id

    @property
    def record(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self.directory / "job.json").read_text())
        return found

    @property
    def slurm_id(self) -> str:
        return str(self.record["slurm_id"])

    def row(self) -> Mapping[str, Any]:
        """Its row of `dlaunch ps`."""
        rows = json.loads(self.bench.dlaunch("ps", "--json").stdout)["jobs"]
        return next(row for row in rows if row["job"] == self.id)

    def output(self, rank: int, attempt: int | None = None) -> list[str]:
        """All lines that a rank printed, in one attempt or over all of them."""
        which = "*" if attempt is None else attempt
        files = sorted((self.directory / "ranks" / str(rank)).glob(f"attempt-{which}/stdout"))
        return [line for file in files for line in file.read_text().splitlines()]

    def losses(self) -> list[float]:
        """Losses by step, over all attempts, as rank 0 wrote them: to the last digit."""
        files = sorted((self.directory / "ranks/0").glob("attempt-*/progress.jsonl"))
        records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert [record["step"] for record in records] == list(range(1, len(records) + 1))
        return [record["loss"] for record in records]

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in (self.directory / "events.jsonl").read_text().splitlines()]

    def wait_for_lines(self, count: int, ranks: Sequence[int] = (0, 1), seconds: float = 60) -> None:
        """Wait until each of `ranks` has printed `count` lines."""
        wait_until(lambda: all(len(self.output(rank)) >= count for rank in ranks), f"{count} lines", seconds)

    def wait(self, seconds: float = 120) -> Mapping[str, Any]:
        """`dlaunch wait --json`."""
        found: Mapping[str, Any] = json.loads(self.bench.dlaunch("wait", "--json", self.id, timeout=seconds).stdout)
        return found


COUNTER = """\
import os, signal, sys, time
from pathlib import Path

told = []
for number in (signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, lambda received, _: told.append(received))
saved = Path(os.environ["DLAUNCH_CHECKPOINT_DIR"], os.environ["RANK"])
saved.parent.mkdir(parents=True, exist_ok=True)
count = int(saved.read_text()) if saved.exists() else 0
print("from", count, "on", os.uname().nodename, flush=True)
while count < int(sys.argv[1]) and not told:
    time.sleep(0.05)
    count += 1
    print(count, flush=True)
saved.write_text(str(count))
"""


@pytest.fixture
def bench(lab: SlurmLab, tmp_path: Path) -> Iterator[Bench]:
    """An empty queue, and `counter.py N`: ranks that count to N, and save where they are when they are told to end."""
    folder = lab.work / tmp_path.name
    folder.mkdir()
    (folder / "counter.py").write_text(COUNTER)
    made = Bench(lab, folder)
    made.inventory()
    yield made
    lab.run_on_login(["scancel", "--user=root"])
    wait_until(lambda: not lab.run_on_login(["squeue", "--noheader"]).stdout, "an empty queue", 60)
    lab.wait_for_nodes()
