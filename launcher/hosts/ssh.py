"""SshHost: a machine reached through its sshd. Nothing is installed on it: a POSIX shell and coreutils do."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence

from fabric import Connection

from launcher.hosts.protocol import DEFAULT_TIMEOUT_S, Completed, HostError, quote
from launcher.hosts.scripts import NO_SUCH_FILE, read_script, spawn_script, write_script
from launcher.hosts.ssh_address import SshAddress
from launcher.hosts.ssh_channel import Link, RemoteCommand
from launcher.hosts.ssh_connect import Connector

__all__ = ["Connector", "SshAddress", "SshHost"]

BULK_TIMEOUT_S = 600.0


class SshHost:
    """One connection to one host; its methods may be called from several threads at once.

    A cut link and a frozen host are noticed within about ten seconds by whatever waits on the host, as HostError.
    """

    def __init__(self, address: SshAddress, connector: Connector, connection: Connection) -> None:
        self.address = address
        self.name = address.name
        self._connector = connector
        self._connection: Connection | None = connection
        self._link = Link(address.name, connection.transport)

    @classmethod
    def connect(cls, address: SshAddress, connector: Connector | None = None) -> SshHost:
        """Connect; hosts that share a `connector` share their gateways. Raises HostError and InputError."""
        connector = connector or Connector()
        return cls(address, connector, connector.connect(address))

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> Completed:
        return self._complete(quote(argv, env), argv[0], input, timeout)

    def spawn(self, argv: Sequence[str], *, input: bytes = b"", log: str) -> None:
        done = self._complete(spawn_script(argv, log), f"starting {argv[0]}", input, DEFAULT_TIMEOUT_S)
        if done.status:
            raise HostError(self.name, f"could not start {argv[0]}: {_last_words(done)}")

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        done = self._complete(read_script(path, offset, limit), f"reading {path}", b"", BULK_TIMEOUT_S)
        if done.status == NO_SUCH_FILE:
            raise FileNotFoundError(path)
        if done.status:
            raise HostError(self.name, f"cannot read {path}: {_last_words(done)}")
        return done.stdout

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        script = write_script(path, len(data), mode, f".draft-{secrets.token_hex(4)}")
        done = self._complete(script, f"writing {path}", data, BULK_TIMEOUT_S)
        if done.status:
            raise HostError(self.name, f"cannot write {path}: {_last_words(done)}")

    def stream(self, argv: Sequence[str]) -> Iterator[bytes]:
        for kind, data in RemoteCommand(self._link, quote(argv)).output():
            if kind == "out":
                yield data

    def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._connector.disconnect(connection)

    def _complete(self, script: str, what: str, input: bytes, timeout: float) -> Completed:
        said: dict[str, list[bytes]] = {"out": [], "err": []}
        command = RemoteCommand(self._link, script, input, timeout)
        try:
            for kind, data in command.output():
                said[kind].append(data)
        except TimeoutError as error:
            raise HostError(self.name, f"{what} did not end within {timeout:g} s") from error
        return Completed(command.status, b"".join(said["out"]), b"".join(said["err"]))


def _last_words(done: Completed) -> str:
    return done.stderr.decode(errors="replace").strip()[-300:] or f"exit status {done.status}"
