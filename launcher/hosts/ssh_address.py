"""Where an SSH host is, and through which gateway: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from launcher.errors import InputError

NO_GATEWAY = "none"


@dataclass(frozen=True)
class SshAddress:
    """How to reach a host. What is None is taken from ssh_config, and where that is silent from OpenSSH's defaults."""

    name: str  # the host's name in the cluster
    address: str = ""  # what to connect to, where it is not `name`
    user: str | None = None
    port: int | None = None
    identity: str | None = None  # path of a private key; then neither agent nor default keys are asked
    ssh_config: str | None = None  # a file that is read in place of the user's and the system's
    known_hosts: str | None = None  # a file that is read in place of ssh_config's and the default ones
    jump: str | None = None  # `[user@]host[:port]`, several with commas, the nearest first; "none" for no gateway

    @property
    def target(self) -> str:
        return self.address or self.name

    @property
    def destination(self) -> str:
        """What one would give to `ssh`."""
        return f"{self.user}@{self.target}" if self.user else self.target


def last_hop(address: SshAddress, configured: Mapping[str, str | Sequence[str]]) -> SshAddress | None:
    """The gateway through which `address` is reached, or None; `configured` is what ssh_config says of it.

    The hops before the last one become that gateway's own `jump`. A host is never its own gateway.
    """
    chain = address.jump or str(configured.get("proxyjump", NO_GATEWAY))
    if chain.lower() == NO_GATEWAY:
        return None
    *before, last = chain.split(",")
    user, host, port = split_destination(last.strip())
    if host == address.target:
        return None
    return replace(address, name=host, address="", user=user, port=port, jump=",".join(before) or None)


def split_destination(text: str) -> tuple[str | None, str, int | None]:
    """`[ssh://][user@]host[:port]` → user, host, port; an IPv6 address with a port stands in brackets."""
    user, _, place = text.removeprefix("ssh://").rpartition("@")
    bracketed = place.startswith("[") and "]" in place
    host, port = place, ""
    if bracketed:
        host, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    elif place.count(":") == 1:
        host, _, port = place.partition(":")
    if not host or (port and not port.isdecimal()):
        raise InputError(f"{text!r} is not [USER@]HOST[:PORT]", where="ProxyJump")
    return user or None, host, int(port) if port else None
