"""Real SSH hosts on this machine, for tests and by hand: every host is an sshd in namespaces of its own.

A host has its own network, hostname, pids, /tmp, /dev/shm and boot id, and a copy-on-write root, so it sees this
checkout and its environment. All hosts hang on a bridge inside the namespace of a login node, where dlaunch runs:
nothing shows in this machine's own network, and several labs may stand at once.

    python -m tests.lab.ssh up 4 [--share DIR]    raise n1 … n4
    python -m tests.lab.ssh login [-- CMD…]       a shell, or CMD, in the login node's HOME with keys and inventory.yaml
    python -m tests.lab.ssh sh n2 -- CMD…         run CMD inside n2, without ssh
    python -m tests.lab.ssh cut|heal|freeze|crash|boot n2
    python -m tests.lab.ssh down

Needs root and the packages of `tests.lab.packages.SSH_LAB`.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tests.lab import namespaces, packages, seed
from tests.lab.machines import CHECKOUT, EVENTS, Lab, by_hand
from tests.lab.namespaces import wait_until
from tests.lab.network import LOGIN, Network
from tests.lab.seed import LOGIN_ADDRESS, SUBNET, HostOptions, Member

INIT = Path(__file__).with_name("host_init.sh")
BY_HAND = Path(tempfile.gettempdir()) / "dlaunch-ssh-lab"
SSHD_LISTENS = (":0016", "0A")  # port 22 and the state LISTEN, as /proc/net/tcp prints them


class SshLab(Lab):
    """N hosts n1 … nN and a login node.

    `share`: folders of this machine that all hosts and the login node have in common.
    `options` hold for every host; `per_host` replaces them for single ones.
    """

    def __init__(
        self,
        count: int,
        *,
        share: Sequence[str | Path] = (),
        options: HostOptions | None = None,
        per_host: Mapping[str, HostOptions] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.hosts = [f"n{number}" for number in range(1, count + 1)]
        self.share = [str(Path(folder).resolve()) for folder in share]
        self.directory = directory or Path(tempfile.mkdtemp(prefix="dlaunch-ssh-lab-"))
        chosen = {**dict.fromkeys(self.hosts, options or HostOptions()), **(per_host or {})}
        self.members = [Member(name, self.address(name), chosen[name]) for name in self.hosts]
        addresses = {LOGIN: LOGIN_ADDRESS, **{name: self.address(name) for name in self.hosts}}
        self.network = Network(f"lab{secrets.token_hex(3)}", addresses)
        self._machines: dict[str, subprocess.Popen[bytes]] = {}

    @classmethod
    def standing(cls, directory: Path) -> SshLab:
        """The lab that was raised in `directory` by another process; raises FileNotFoundError."""
        record = json.loads((directory / "lab.json").read_text())
        lab = cls(record["count"], share=record["share"], directory=directory)
        lab.network = replace(lab.network, lab=record["id"])
        return lab

    # Where things are

    @property
    def home(self) -> Path:
        """Home of the user on the login node."""
        return self.directory / "home"

    @property
    def identity(self) -> Path:
        return self.home / ".ssh/id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh/known_hosts"

    @property
    def ssh_config(self) -> Path:
        """What OpenSSH's own programs need: `ssh -F`."""
        return self.home / ".ssh/config"

    def address(self, host: str) -> str:
        return f"{SUBNET}.{self.hosts.index(host) + 1}"

    def root(self, host: str) -> Path:
        """What is laid over the host's root at its next boot."""
        return self.directory / host / "seed"

    def namespace(self, member: str) -> str:
        """Name of the network namespace of a host, or of `login`."""
        return self.network.namespace(member)

    def inventory_yaml(self, **settings: Any) -> str:
        """An inventory whose default cluster `lab` is this lab; `settings` add keys to it or replace them."""
        entry = {
            "kind": "ssh",
            "hosts": f"n[1-{len(self.hosts)}]",
            "user": "root",
            "identity": str(self.identity),
            "shared_filesystem": bool(self.share),
            **settings,
        }
        return yaml.safe_dump({"default": "lab", "clusters": {"lab": entry}}, sort_keys=False)

    # Raising and removing

    def up(self) -> None:
        """Raise all; returns when every sshd listens."""
        self.directory.mkdir(parents=True, exist_ok=True)
        record = {"id": self.network.lab, "count": len(self.hosts), "share": self.share}
        (self.directory / "lab.json").write_text(json.dumps(record))
        self._write_files()
        self.network.up()
        for host in self.hosts:
            self._machines[host] = self._start(host)
        for host in self.hosts:
            self._wait_for_sshd(host)

    def down(self) -> None:
        self.network.down()
        for machine in self._machines.values():
            machine.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _write_files(self) -> None:
        keys = {host: seed.host_key(self.root(host)) for host in self.hosts}
        user_key = seed.write_home(self.home, self.members, keys)
        for member in self.members:
            seed.write_root(self.root(member.name), member, self.members, user_key)
            (self.directory / member.name / "stage").mkdir()
            (self.directory / member.name / "boot.env").write_text(self._boot_environment(member))
        (self.directory / "hosts").write_text(seed.hosts_file(self.members))
        (self.home / "inventory.yaml").write_text(self.inventory_yaml())

    def _boot_environment(self, member: Member) -> str:
        """Assignments for host_init.sh."""
        masked = [str(CHECKOUT)] if CHECKOUT.is_relative_to("/tmp") else []
        values = {
            "NAME": member.name,
            "STAGE": str(self.directory / member.name / "stage"),
            "SEED": str(self.root(member.name)),
            "DISK": member.options.disk,
            "SHM": member.options.shm,
            "SHARED": "".join(f"{folder}\n" for folder in self.share),
            "HIDDEN": "".join(f"{folder}\n" for folder in masked),
        }
        return "".join(f"{key}={shlex.quote(value)}\n" for key, value in values.items())

    def _start(self, host: str) -> subprocess.Popen[bytes]:
        script = f"set -a; . {shlex.quote(str(self.directory / host / 'boot.env'))}; set +a\n{INIT.read_text()}"
        with (self.directory / host / "boot.log").open("wb") as log:
            return subprocess.Popen(
                [
                    *(*self.network.enter(host), "unshare", "--uts", "--ipc", "--pid", "--mount"),
                    *("--fork", "--kill-child", "sh", "-c", script),
                ],
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_for_sshd(self, host: str) -> None:
        machine = self._machines[host]
        sockets = Path(f"/proc/{machine.pid}/net/tcp")

        def listens() -> bool:
            if machine.poll() is not None:
                raise RuntimeError(f"{host} did not boot: {(self.directory / host / 'boot.log').read_text()}")
            rows = [line.split() for line in sockets.read_text().splitlines()]
            return any(row[1].endswith(SSHD_LISTENS[0]) and row[3] == SSHD_LISTENS[1] for row in rows)

        wait_until(listens, f"the sshd of {host}")

    # Bad days

    def heal(self, host: str) -> None:
        """Undo `cut` and `freeze`."""
        super().heal(host)
        namespaces.signal_all(self.namespace(host), signal.SIGCONT)

    def freeze(self, host: str) -> None:
        """Stop every process of the host; its kernel still answers for open connections."""
        namespaces.signal_all(self.namespace(host), signal.SIGSTOP)

    def crash(self, host: str) -> None:
        """Power loss: the link goes first, so that no FIN or RST leaves; then every process dies."""
        self.cut(host)
        namespaces.kill_all(self.namespace(host))
        if host in self._machines:
            self._machines.pop(host).wait()

    def boot(self, host: str) -> None:
        """Boot after `crash`, with a fresh disk."""
        self._machines[host] = self._start(host)
        self._wait_for_sshd(host)
        self.heal(host)

    def change_host_key(self, host: str) -> None:
        """The host comes back with another key than known_hosts has."""
        self.crash(host)
        seed.host_key(self.root(host))
        self.boot(host)

    # Running things

    def entered(self) -> AbstractContextManager[None]:
        """This thread, and what it starts, talk as the login node (addresses, not names: /etc/hosts stays ours)."""
        return namespaces.entered(self.namespace(LOGIN))

    def login_argv(self, argv: Sequence[str]) -> list[str]:
        """`argv` so that it runs on the login node, with its /etc/hosts."""
        hosts = shlex.quote(str(self.directory / "hosts"))
        script = f'hostname login; mount --bind {hosts} /etc/hosts; exec "$@"'
        unshare = ["unshare", "--mount", "--propagation", "slave", "--uts"]
        return [*self.network.enter(LOGIN), *unshare, "sh", "-c", script, "sh", *argv]

    def login_env(self, **values: str) -> dict[str, str]:
        """The environment of a process on the login node: HOME holds the keys, and no agent is asked."""
        kept = {key: value for key, value in os.environ.items() if key not in ("SSH_AUTH_SOCK", "DLAUNCH_HOME")}
        return {**kept, "HOME": str(self.home), **values}

    def run_on_login(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 120.0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` on the login node to its end, output as text; `env` is added to `login_env`."""
        return subprocess.run(
            self.login_argv(argv),
            env=self.login_env(**(env or {})),
            **{"capture_output": True, "text": True, "errors": "replace", "timeout": timeout, **options},
        )

    def start_on_login(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """Like `run_on_login`, but returns the running process (`argv` itself: the wrappers exec)."""
        return subprocess.Popen(self.login_argv(argv), env=self.login_env(**(env or {})), **options)

    def host_argv(self, host: str, argv: Sequence[str]) -> list[str]:
        """`argv` so that it runs inside `host`, without ssh."""
        first = next(pid for pid in namespaces.processes(self.namespace(host)) if namespaces.is_init(pid))
        inside = ["--net", "--uts", "--ipc", "--pid", "--mount", "--root", "--wd=/"]
        return ["nsenter", "-t", str(first), *inside, "--", *argv]

    def run_on(self, host: str, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run `argv` inside `host` without ssh: to look at it when it cannot be reached."""
        defaults = {"capture_output": True, "text": True, "errors": "replace", "timeout": 60, "check": True}
        return subprocess.run(self.host_argv(host, argv), **{**defaults, **options})


def raise_by_hand(given: argparse.Namespace) -> str:
    packages.install(packages.SSH_LAB)
    lab = SshLab(given.count, share=given.share, directory=given.dir).__enter__()
    (lab.home / "inventory.yaml").write_text(lab.inventory_yaml(python=sys.executable))
    return f"{', '.join(lab.hosts)} stand; inventory: {lab.home / 'inventory.yaml'}"


if __name__ == "__main__":
    options: dict[str, dict[str, object]] = {
        "count": {"type": int},
        "--share": {"action": "append", "default": [], "help": "a folder that all hosts have in common"},
    }
    by_hand("ssh", BY_HAND, options, raise_by_hand, SshLab.standing, (*EVENTS, "freeze"))
