"""What went wrong between us and an sshd, in words that say what to do."""

from __future__ import annotations

import socket
from typing import NoReturn

import paramiko
from paramiko.ssh_exception import (
    ChannelException,
    IncompatiblePeer,
    NoValidConnectionsError,
    PasswordRequiredException,
)

from launcher.hosts.protocol import HostError
from launcher.hosts.ssh_address import SshAddress

SSH_ERRORS = (paramiko.SSHException, OSError, EOFError)
TURNED_AWAY_WITHIN_S = 4.0
NO_KEY = "No authentication methods available"  # paramiko's words for it


class UnknownHostKey(paramiko.SSHException):
    """The host has a key that no known_hosts file holds."""

    def __init__(self, key: paramiko.PKey) -> None:
        super().__init__(f"unknown {key.get_name()} host key")
        self.fingerprint = key.fingerprint


class RejectUnknown(paramiko.RejectPolicy):
    """RejectPolicy, with the key at hand for the message."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:
        raise UnknownHostKey(key)


def turned_away(error: BaseException, after_s: float) -> bool:
    """Whether sshd closed the connection at once: over MaxStartups it does so before the banner or in the handshake.

    A host that is frozen says nothing until our own time is up, which is no reason to ask again.
    """
    if after_s > TURNED_AWAY_WITHIN_S:
        return False
    dropped = isinstance(error, (EOFError, ConnectionResetError))
    return dropped or (isinstance(error, paramiko.SSHException) and "banner" in str(error))


def explain(address: SshAddress, error: BaseException) -> HostError:
    """`error`, met while connecting to `address`, as one line and its remedy."""
    message, help = _explain(address, error)
    return HostError(address.name, message, help=help)


def _explain(address: SshAddress, error: BaseException) -> tuple[str, str]:
    if isinstance(error, (UnknownHostKey, paramiko.BadHostKeyException)):
        return _explain_key(address, error)
    if isinstance(error, PasswordRequiredException) or NO_KEY in str(error):
        return "no key to offer it, or only one with a passphrase", f"ssh-add {address.identity or ''}".strip()
    if isinstance(error, paramiko.AuthenticationException) and "timeout" not in str(error).lower():
        return _explain_refused_keys(address)
    if isinstance(error, ChannelException):
        return f"its gateway cannot reach {address.target}: {error.text}", "check the host's name and state"
    if isinstance(error, IncompatiblePeer):
        return f"its sshd and we share no algorithm: {error}", f"ssh -v {address.destination} true"
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        return _explain_network(address, error)
    connects = not isinstance(error, TimeoutError)
    message = "it accepts connections, but no sshd answers" if connects else f"{address.target} does not answer"
    return message, f"the host may be frozen, out of memory or switched off; try: ssh {address.destination} true"


def _explain_key(address: SshAddress, error: UnknownHostKey | paramiko.BadHostKeyException) -> tuple[str, str]:
    port = f"-p {address.port} " if address.port else ""
    file = address.known_hosts or "~/.ssh/known_hosts"
    learn = f"ssh-keyscan {port}{address.target} >> {file}"
    if isinstance(error, UnknownHostKey):
        return f"its host key {error.fingerprint} is not known", f"compare it with the host's own, then: {learn}"
    name = f"'[{address.target}]:{address.port}'" if address.port else address.target
    return (
        f"its host key has changed to {error.key.fingerprint}: another machine may be answering",
        f"if the host was installed anew: ssh-keygen -f {file} -R {name}; {learn}",
    )


def _explain_refused_keys(address: SshAddress) -> tuple[str, str]:
    who = f"user {address.user}" if address.user else "us"
    key = f"-i {address.identity} " if address.identity else ""
    return f"it refuses the keys of {who}", f"ssh-copy-id {key}{address.destination}, or set user and identity"


def _explain_network(address: SshAddress, error: OSError) -> tuple[str, str]:
    if isinstance(error, socket.gaierror):
        return f"the name {address.target} does not resolve", "correct it, or give HostName in ssh_config"
    if isinstance(error, (ConnectionRefusedError, NoValidConnectionsError)):
        reason = _refusal(error)
        return f"cannot connect to {address.target}: {reason}", "check that the host is up, its sshd runs, and the port"
    return f"cannot connect to {address.target}: {error.strerror or error}", "check the network to the host"


def _refusal(error: OSError) -> str:
    """NoValidConnectionsError hides the reasons in a dictionary of addresses."""
    first = next(iter(error.errors.values())) if isinstance(error, NoValidConnectionsError) else error
    return (getattr(first, "strerror", None) or str(first)).lower()
