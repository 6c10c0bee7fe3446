"""Where stories are told: this machine, or real SSH hosts that share a folder. Both are driven as a user does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.common.paths import JobPaths
from launcher.jobs.record import JobRecord
from tests.chaos.story import SiteName
from tests.lab.namespaces import NAMED
from tests.lab.ssh import SshLab
from tests.support.dlaunch import BIN, members

STANDIN = Path(__file__).with_name("standin.py")


class Site(ABC):
    """A place with hosts, where `dlaunch` runs as a user's command and things may be broken."""

    name: SiteName
    hosts: int

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dlaunch-chaos-"))
        self.script = str(shutil.copy(STANDIN, self.folder))

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    @abstractmethod
    def jobs_folder(self) -> Path:
        """Where the records lie."""

    @abstractmethod
    def terminal(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """`dlaunch …` in a terminal of its own."""

    @abstractmethod
    def kill(self, record: JobRecord, node: int, pid: int, number: signal.Signals) -> None:
        """Signal a process of a node; one that is gone already is as well."""

    @abstractmethod
    def left(self, job: str) -> Mapping[str, Sequence[str]]:
        """Host -> pid and command of what still runs of a job."""

    def dlaunch(self, *argv: str, timeout: float = 120.0) -> tuple[int, str]:
        """Run a command to its end: exit status and output."""
        process = self.terminal(argv)
        try:
            out, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            return -9, f"did not end within {timeout:g} s: {out.decode(errors='replace')}"
        return process.returncode, out.decode(errors="replace")

    def paths(self, name: str) -> JobPaths | None:
        """The directory of the job of that name, once it is there."""
        found = [path for path in self.jobs_folder.glob(f"{name}-*") if (path / "job.json").exists()]
        return JobPaths(found[0]) if found else None

    def folders(self, record: JobRecord) -> list[Path]:
        """The record's folder and those in which its nodes write."""
        folders = {self.jobs_folder / record.job, *(Path(node.directory) for node in record.nodes)}
        return [folder for folder in folders if folder.exists()]  # none where no agent was started yet

    def agent(self, record: JobRecord, node: int) -> Mapping[str, Any]:
        """What the agent of a node wrote last; empty where it wrote nothing yet."""
        with suppress(OSError, ValueError, StopIteration):
            place = next(one for one in record.nodes if one.node_rank == node)
            return dict(json.loads(JobPaths(Path(place.directory)).agent(node).read_text()))
        return {}

    def cut(self, record: JobRecord, node: int) -> None:
        raise NotImplementedError(f"{self.name} has no links")

    def crash(self, record: JobRecord, node: int) -> None:
        raise NotImplementedError(f"{self.name} has no hosts")

    @abstractmethod
    def heal(self) -> None:
        """Undo what was done to links and hosts."""


class LocalSite(Site):
    """Simulated nodes of this machine."""

    name, hosts = "local", 3

    @property
    def jobs_folder(self) -> Path:
        return self.folder / "home" / "jobs"

    def terminal(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "DLAUNCH_HOME": str(self.folder / "home")}
        return _terminal([str(BIN / "dlaunch"), *argv], self.folder, environment)

    def kill(self, record: JobRecord, node: int, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def left(self, job: str) -> Mapping[str, Sequence[str]]:
        return {"this machine": [str(pid) for pid in found]} if (found := members(job)) else {}

    def heal(self) -> None:
        """There is nothing to heal."""


class SshSite(Site):
    """Hosts in network namespaces with a shared folder; a cut host comes back by `heal`, a crashed one boots anew."""

    name, hosts = "ssh", 3

    def __init__(self) -> None:
        super().__init__()
        self.lab = SshLab(self.hosts, share=[self.folder])
        self._cut: set[str] = set()
        self._crashed: set[str] = set()

    def __enter__(self) -> Site:
        self.lab.__enter__()
        settings = {"python": sys.executable, "workdir": str(self.folder), "directory": str(self.folder / "shared")}
        (self.lab.home / "inventory.yaml").write_text(self.lab.inventory_yaml(**settings))
        return self

    def __exit__(self, *_: object) -> None:
        namespaces = [self.lab.namespace(member) for member in (*self.lab.hosts, "login")]
        self.lab.down()
        super().__exit__()
        left = [name for name in namespaces if (NAMED / name).exists()]
        assert not left and not self.lab.directory.exists(), left

    @property
    def jobs_folder(self) -> Path:
        return self.lab.home / ".local/state/dlaunch/jobs"

    def terminal(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        login = self.lab.login_argv(["env", "-C", str(self.lab.home), str(BIN / "dlaunch"), *argv])
        return _terminal(login, self.folder, self.lab.login_env())

    def kill(self, record: JobRecord, node: int, pid: int, number: signal.Signals) -> None:
        host = record.nodes[node].host
        if host not in self._crashed:
            self.lab.run_on(host, ["kill", f"-{number.value}", str(pid)], check=False)

    def left(self, job: str) -> Mapping[str, Sequence[str]]:
        look = f"""for file in $(grep -lz '^DLAUNCH_JOB={job}$' /proc/[0-9]*/environ 2>/dev/null); do
            process=${{file%/environ}}; echo "${{process#/proc/}} $(tr '\\0' ' ' <$process/cmdline)"; done"""
        said = {host: self.lab.run_on(host, ["sh", "-c", look], check=False).stdout for host in self.lab.hosts}
        return {host: text.splitlines() for host, text in said.items() if text}

    def cut(self, record: JobRecord, node: int) -> None:
        self._cut.add(record.nodes[node].host)
        self.lab.cut(record.nodes[node].host)

    def crash(self, record: JobRecord, node: int) -> None:
        host = record.nodes[node].host
        if host not in self._crashed:
            self._crashed.add(host)
            self.lab.crash(host)

    def heal(self) -> None:
        for host in self._crashed:
            self.lab.boot(host)
        for host in self._cut - self._crashed:
            self.lab.heal(host)
        self._cut, self._crashed = set(), set()


SITES: Mapping[SiteName, type[Site]] = {"local": LocalSite, "ssh": SshSite}


def _terminal(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
