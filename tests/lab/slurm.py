"""A real Slurm cluster on this machine: nodes in network, PID, mount and UTS namespaces, one shared work directory.

    python -m tests.lab.slurm up [--no-accounting]      raise it and print its directory
    python -m tests.lab.slurm login -- squeue           run a command on the login node
    python -m tests.lab.slurm sh n1 -- hostname         run a command on a node, beside Slurm
    python -m tests.lab.slurm cut n3 | heal n3 | crash n3 | boot n3
    python -m tests.lab.slurm down

In tests: `with SlurmLab() as lab: lab.run_on_login(["sinfo"])`. Two labs may stand at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.lab import namespaces, packages
from tests.lab import slurm_config as config
from tests.lab.machines import CHECKOUT, Lab, by_hand
from tests.lab.namespaces import wait_until
from tests.lab.network import Network
from tests.lab.slurm_config import ClusterShape

STATE_FILE = "lab.json"
BY_HAND = Path("/var/tmp/dlaunch-slurm-lab")


class SlurmLab(Lab):
    """The cluster. `work` is the directory that all nodes and the login node share."""

    def __init__(self, shape: ClusterShape | None = None, root: Path | None = None) -> None:
        self.shape = shape or ClusterShape()
        self.root = root or Path(tempfile.mkdtemp(prefix="dlaunch-slurm-", dir="/var/tmp"))
        self.network = Network(f"sl{os.getpid()}-{self.root.name[-8:]}", self.shape.addresses)
        self.inits: dict[str, int] = {}  # node -> pid of its `unshare`, whose child is the node's PID 1
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def path(self) -> str:
        """PATH of commands on the lab's machines: this Python's programs come first."""
        return f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"

    @property
    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.root / "slurm.conf")}

    # ---- raise and tear down

    def up(self) -> None:
        packages.install(packages.SLURM_LAB)
        self._write_files()
        self.network.up()
        self._save()
        self._start_munge()
        if self.shape.accounting:
            self._start_accounting()
        self.start_controller()
        for node in self.shape.names:
            self.boot(node)
        self.wait_for_nodes()

    def down(self) -> None:
        for node in self.inits:
            self._kill_node(node)
        for pid_file in ("slurmctld.pid", "slurmdbd.pid", "db/mariadbd.pid", "munge/pid"):
            self._stop_daemon(pid_file)
        for child in self._children:
            child.wait(10)
        self.network.down()
        shutil.rmtree(self.root, ignore_errors=True)

    def _write_files(self) -> None:
        self.root.chmod(0o755)
        for folder in ("state", "spool", "log", "munge", "db", "dev", "work", "checkout"):
            (self.root / folder).mkdir(exist_ok=True)
        texts = {
            "hosts": config.hosts_file(self.shape),
            "slurm.conf": config.slurm_conf(self.shape, self.root),
            "gres.conf": config.gres_conf(self.shape, self.root),
            "topology.conf": config.topology_conf(self.shape),
            "slurmdbd.conf": config.slurmdbd_conf(self.root),
            "db/my.cnf": config.database_conf(self.root),
        }
        for name, text in texts.items():
            (self.root / name).write_text(text)
        (self.root / "slurmdbd.conf").chmod(0o600)
        for index in range(self.shape.gpus):  # Slurm wants device nodes; /dev/null's twin does
            os.mknod(self.root / f"dev/nvidia{index}", 0o20666, os.makedev(1, 3))

    def _save(self) -> None:
        state = {"lab": self.network.lab, "shape": asdict(self.shape), "inits": self.inits}
        (self.root / STATE_FILE).write_text(json.dumps(state))

    @classmethod
    def standing(cls, root: Path) -> SlurmLab:
        """The lab that another process raised in `root`; raises FileNotFoundError."""
        state = json.loads((root / STATE_FILE).read_text())
        leaves = tuple(tuple(leaf) for leaf in state["shape"].pop("leaves"))
        lab = cls(ClusterShape(**state["shape"], leaves=leaves), root)
        lab.network = Network(state["lab"], lab.shape.addresses)
        lab.inits = state["inits"]
        return lab

    # ---- daemons of the login node

    def _start_munge(self) -> None:
        folder = self.root / "munge"
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        paths = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        _run(["munged", *(f"--{option}={folder / name}" for option, name in paths.items())])
        wait_until(lambda: (folder / "socket").exists(), "munged")

    def _start_accounting(self) -> None:
        database = self.root / "db"
        _run(["mysql_install_db", f"--defaults-file={database}/my.cnf", "--skip-test-db"])
        with (self.root / "log/mariadbd.out").open("wb") as log:
            argv = ["mariadbd", f"--defaults-file={database}/my.cnf"]
            self._children.append(subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True))
        client = ["mysql", f"--socket={database}/mysql.sock", "-e"]
        wait_until(lambda: _succeeds([*client, "select 1"]), "mariadbd", 60)
        user, password = config.DATABASE_USER, config.DATABASE_PASSWORD
        _run(
            [
                *client,
                f"create database slurm_acct_db; create user '{user}'@'localhost' identified by '{password}'; "
                f"grant all on slurm_acct_db.* to '{user}'@'localhost'",
            ]
        )
        self.run_on_login(["slurmdbd"], env={"MYSQL_UNIX_PORT": f"{database}/mysql.sock"})
        self.wait_for_login(["sacctmgr", "-i", "add", "cluster", "lab"], "slurmdbd", 60)

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers; its state survives a stop."""
        self.run_on_login(["slurmctld", "-f", str(self.root / "slurm.conf")])
        self.wait_for_login(["sinfo"], "slurmctld")

    def stop_controller(self) -> None:
        self._stop_daemon("slurmctld.pid")

    def _stop_daemon(self, pid_file: str) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            pid = int((self.root / pid_file).read_text())
            os.kill(pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                wait_until(lambda: not _alive(pid), pid_file, 10)
                return
            os.kill(pid, signal.SIGKILL)

    # ---- nodes

    def boot(self, host: str) -> None:
        """Switch a host on; it registers by itself."""
        argv = ["unshare", "--uts", "--ipc", "--pid", "--mount", "--fork", "--kill-child", "bash", "-c"]
        with (self.root / f"log/console-{host}.log").open("ab") as console:
            process = subprocess.Popen(
                [*self.network.enter(host), *argv, config.node_init(self.root, host, CHECKOUT)],
                env=self.login_env(),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        self._children.append(process)
        self.inits[host] = process.pid
        self._save()
        self.network.heal(host)

    def crash(self, host: str) -> None:
        """Power loss: the cable goes first, so that no packet leaves, then every process dies."""
        self.network.cut(host)
        self._kill_node(host)

    def kill_slurmd(self, node: str) -> None:
        """Kill the daemon alone: the tasks and their slurmstepd live on."""
        os.kill(self._host_pid(node, f"slurmd-{node}.pid"), signal.SIGKILL)

    def start_slurmd(self, node: str) -> None:
        self.run_on_node(node, ["slurmd", "-N", node, "-f", str(self.root / "slurm.conf")])

    def _kill_node(self, node: str) -> None:
        pid = self.inits[node]
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if b"unshare" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda: not _alive(pid), f"the end of {node}")

    def _init_pid(self, node: str) -> int:
        children = Path(f"/proc/{self.inits[node]}/task/{self.inits[node]}/children")
        return int(children.read_text().split()[0])

    def _host_pid(self, node: str, pid_file: str) -> int:
        """The pid on this machine of a process that a pid file names by its pid inside the node."""
        inside = (self.root / pid_file).read_text().strip()
        for pid in namespaces.processes(self.network.namespace(node)):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = Path(f"/proc/{pid}/status").read_text()
                if re.search(rf"^NSpid:.*\t{inside}$", status, re.MULTILINE):
                    return pid
        raise ProcessLookupError(f"{node} runs no process {inside} of {pid_file}")

    # ---- commands

    def login_argv(self, argv: Sequence[str]) -> list[str]:
        """`argv` as a command of this machine that runs on the login node, in the current directory."""
        inside = f'hostname login; mount --bind {shlex.quote(str(self.root / "hosts"))} /etc/hosts; exec "$@"'
        return [*self.network.enter("login"), "unshare", "--mount", "--uts", "sh", "-c", inside, "sh", *argv]

    def host_argv(self, host: str, argv: Sequence[str]) -> list[str]:
        return ["nsenter", "-t", str(self._init_pid(host)), "--net", "--uts", "--ipc", "--pid", "--mount", *argv]

    def run_on_login(self, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on the login node; it must succeed unless `check=False`. `env` adds to the environment."""
        return self._execute(self.login_argv(argv), **options)

    def run_on_node(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on a node, not as part of any job."""
        return self._execute(self.host_argv(node, argv), **options)

    def popen_on_login(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any) -> Any:
        return subprocess.Popen(self.login_argv(argv), env=self.login_env(**(env or {})), **options)

    def _execute(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, check: bool = True, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        options = {"timeout": 60, "cwd": self.work, **options}
        done = subprocess.run(argv, env=self.login_env(**(env or {})), capture_output=True, text=True, **options)
        if check and done.returncode:
            raise AssertionError(f"{shlex.join(argv[-6:])} ended with {done.returncode}: {done.stderr or done.stdout}")
        return done

    def login_env(self, **values: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return {**kept, "PATH": self.path, **self.env, **values}

    # ---- waiting

    def wait_for_login(self, argv: Sequence[str], what: str, seconds: float = 20) -> None:
        """Wait until a command of the login node succeeds."""
        wait_until(lambda: self.run_on_login(argv, check=False).returncode == 0, what, seconds)

    def wait_for_nodes(self, state: str = "idle", nodes: Sequence[str] | None = None, seconds: float = 60) -> None:
        """Wait until `nodes` (all by default) are in the long state `state`."""
        wanted = {f"{node} {state}" for node in nodes or self.shape.names}
        wait_until(lambda: wanted <= set(self._node_states()), f"nodes that are {state}", seconds)

    def _node_states(self) -> list[str]:
        return self.run_on_login(["sinfo", "-h", "-N", "-p", "main", "-o", "%N %T"], check=False).stdout.splitlines()

    def job_state(self, job: str | int) -> str:
        """State of a job that the controller still knows, with its reason: `PENDING Resources`."""
        text = self.run_on_login(["squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T %r"], check=False).stdout
        return text.strip()

    def wait_for_job(self, job: str | int, state: str, seconds: float = 60) -> None:
        wait_until(lambda: self.job_state(job).startswith(state), f"{state} of job {job}", seconds)


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(argv)} ended with {done.returncode}: {done.stderr or done.stdout}")


def _succeeds(argv: Sequence[str]) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def _alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def raise_by_hand(given: argparse.Namespace) -> str:
    given.dir.mkdir()
    lab = SlurmLab(ClusterShape(accounting=not given.no_accounting), given.dir).__enter__()
    return f"cluster of {lab.shape.nodes} nodes, shared work directory {lab.work}"


if __name__ == "__main__":
    by_hand("slurm", BY_HAND, {"--no-accounting": {"action": "store_true"}}, raise_by_hand, SlurmLab.standing)
