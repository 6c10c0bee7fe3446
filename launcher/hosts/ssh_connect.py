"""Opening SSH connections, from many threads at once.

fabric's Connection knows ssh_config and how to connect, but takes unknown host keys on trust, opens a gateway anew for
each host and asks no sshd a second time: these parts are ours.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import paramiko
from fabric import Config, Connection
from paramiko.config import SSHConfig
from paramiko.ssh_exception import ConfigParseError, PasswordRequiredException

from launcher.errors import InputError
from launcher.hosts.protocol import HostError
from launcher.hosts.ssh_address import SshAddress, last_hop
from launcher.hosts.ssh_errors import SSH_ERRORS, RejectUnknown, explain, turned_away

CONNECT_TIMEOUT_S = 10
BANNER_TIMEOUT_S = 8  # a frozen host accepts a connection and then says nothing
LOGIN_TIMEOUT_S = 30  # many an sshd looks names up first
THREAD_END_S = 5.0
PATIENCE_S = 30.0  # for how long an sshd that turns us away is asked again
CONFIG_FILES = ("~/.ssh/config", "/etc/ssh/ssh_config")
USER_KNOWN_HOSTS, SYSTEM_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts"
KEEPALIVE = {
    socket.TCP_KEEPIDLE: 2,
    socket.TCP_KEEPINTVL: 2,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 8000,  # ms; keepalive says nothing while our own data is unacknowledged
}

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its errors reach the user as ours


class Connector:
    """Opens connections; those that share a gateway share one connection to it, which goes with the last of them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users = 0
        self._gateways: dict[SshAddress, Connection | HostError] = {}
        self._configs: dict[str | None, SSHConfig] = {}
        self._keys: dict[str, paramiko.PKey | None] = {}
        self._known_hosts: dict[str, paramiko.HostKeys] = {}

    def connect(self, address: SshAddress) -> Connection:
        """An open connection, to be given back by `disconnect`.

        Raises HostError, which says what to do, and InputError for an unusable ssh_config or key file.
        """
        with self._lock:
            self._users += 1
        try:
            return self._open(address)
        except BaseException:
            self._leave()
            raise

    def disconnect(self, connection: Connection) -> None:
        shut(connection)
        self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                for gateway in self._gateways.values():
                    if isinstance(gateway, Connection):
                        shut(gateway)
                self._gateways.clear()

    def _open(self, address: SshAddress) -> Connection:
        gateway = self._gateway(address)
        connection = self._prepare(address, gateway)
        try:
            open_patiently(connection, address)
        except BaseException:
            shut(connection)
            raise
        if gateway is None:
            keep_alive(connection)
        return connection

    def _gateway(self, address: SshAddress) -> Connection | None:
        """The open gateway of `address`; whoever comes first opens it, and its failure is everybody's."""
        hop = last_hop(address, self._config(address.ssh_config).lookup(address.target))
        if hop is None:
            return None
        with self._lock:
            known = self._gateways.get(hop)
            if known is None or (isinstance(known, Connection) and not known.is_connected):
                self._gateways[hop] = known = self._attempt(hop)
        if isinstance(known, HostError):
            raise HostError(address.name, f"its gateway failed: {known.message}", help=known.help)
        return known

    def _attempt(self, hop: SshAddress) -> Connection | HostError:
        try:
            return self._open(hop)
        except HostError as error:
            return error

    def _prepare(self, address: SshAddress, gateway: Connection | None) -> Connection:
        options: dict[str, object] = {
            "banner_timeout": BANNER_TIMEOUT_S,
            "auth_timeout": LOGIN_TIMEOUT_S,
            "channel_timeout": CONNECT_TIMEOUT_S,
        }
        if address.identity:
            key = self._key(address.identity)
            options |= {"pkey": key, "look_for_keys": False, "allow_agent": key is None}
        connection = Connection(
            address.target,
            user=address.user,
            port=address.port,
            config=Config(lazy=True, ssh_config=self._config(address.ssh_config)),
            connect_timeout=CONNECT_TIMEOUT_S,
            connect_kwargs=options,
            gateway=gateway or self._proxy_command(address) or False,  # None makes fabric look for one itself
        )
        connection.client.set_missing_host_key_policy(RejectUnknown())
        self._trust(connection, address)
        return connection

    def _proxy_command(self, address: SshAddress) -> str | None:
        return None if address.jump else self._config(address.ssh_config).lookup(address.target).get("proxycommand")

    def _trust(self, connection: Connection, address: SshAddress) -> None:
        """Give paramiko the keys that known_hosts has for the host, under any of its names."""
        configured = connection.ssh_config
        files = [address.known_hosts] if address.known_hosts else _known_hosts_files(configured)
        alias = configured.get("hostkeyalias")
        names = [alias] if alias else [connection.host, address.target, address.name]
        checked_as = _known_as(connection.host, connection.port)
        for file in files:
            known = self._known(file)
            for name in names:
                for kind, key in (known.lookup(_known_as(name, connection.port)) or {}).items():
                    connection.client.get_host_keys().add(checked_as, kind, key)

    def _known(self, file: str) -> paramiko.HostKeys:
        with self._lock:
            if file not in self._known_hosts:
                keys = self._known_hosts[file] = paramiko.HostKeys()
                path = Path(file).expanduser()
                if path.is_file():
                    keys.load(str(path))
            return self._known_hosts[file]

    def _config(self, file: str | None) -> SSHConfig:
        with self._lock:
            if file not in self._configs:
                self._configs[file] = read_config(file)
            return self._configs[file]

    def _key(self, identity: str) -> paramiko.PKey | None:
        """The private key; None when it has a passphrase, so that only an agent can use it."""
        with self._lock:
            if identity not in self._keys:
                self._keys[identity] = read_key(identity)
            return self._keys[identity]


def read_config(file: str | None) -> SSHConfig:
    """`file`, or the user's and the system's where it is None; raises InputError."""
    config = SSHConfig()
    paths = [Path(name).expanduser() for name in ([file] if file else CONFIG_FILES)]
    for path in paths:
        if not path.is_file():
            if file:
                raise InputError("no such file", where=f"ssh_config {file}")
            continue
        try:
            with path.open() as lines:
                config.parse(lines)
        except (ConfigParseError, UnicodeDecodeError) as error:
            raise InputError(str(error), where=str(path), help=f"ssh -G -F {path} localhost") from error
    return config


def read_key(identity: str) -> paramiko.PKey | None:
    """The private key in file `identity`, None when a passphrase guards it; raises InputError."""
    try:
        return paramiko.PKey.from_path(Path(identity).expanduser())
    except (PasswordRequiredException, TypeError):  # the latter is cryptography's way of asking for a passphrase
        return None
    except OSError as error:
        raise InputError(f"cannot read: {error.strerror}", where=f"identity {identity}") from error
    except (ValueError, paramiko.SSHException) as error:
        raise InputError(f"not a private key: {error}", where=f"identity {identity}") from error


def open_patiently(connection: Connection, address: SshAddress) -> None:
    """Open; an sshd that turns us away (MaxStartups) is asked again. Raises HostError."""
    deadline = time.monotonic() + PATIENCE_S
    pause = 0.1
    while True:
        started = time.monotonic()
        try:
            connection.open()
            return
        except SSH_ERRORS as error:
            shut(connection)
            now = time.monotonic()
            if not turned_away(error, now - started):
                raise explain(address, error) from error
            if now > deadline:
                message = f"its sshd closes every connection at once, for {PATIENCE_S:g} s now"
                raise HostError(address.name, message, help="raise MaxStartups in its sshd_config") from error
        time.sleep(random.uniform(pause / 2, pause))
        pause = min(2 * pause, 2.0)


def shut(connection: Connection) -> None:
    """Close, also what is half open or lost (fabric's `close` does not), and see its thread end."""
    transport = connection.client.get_transport()
    if transport is not None and isinstance(transport.sock, socket.socket):
        with contextlib.suppress(OSError):
            transport.sock.shutdown(socket.SHUT_RDWR)  # else the thread notices a tenth of a second later
    connection.client.close()
    if transport is not None:
        transport.join(THREAD_END_S)


def keep_alive(connection: Connection) -> None:
    """Let the kernel notice a cut link; a frozen host is noticed by `ssh_channel.Link`."""
    sock = connection.transport.sock
    if isinstance(sock, socket.socket):  # not so behind a ProxyCommand
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _known_hosts_files(configured: Mapping[str, str]) -> list[str]:
    user = configured.get("userknownhostsfile", USER_KNOWN_HOSTS)
    return [*user.split(), *configured.get("globalknownhostsfile", SYSTEM_KNOWN_HOSTS).split()]


def _known_as(name: str, port: int) -> str:
    return name if port == paramiko.config.SSH_PORT else f"[{name}]:{port}"
