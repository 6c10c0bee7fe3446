"""How machines are reached: one protocol (`protocol.Host`), and an implementation for each kind of cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from launcher.hosts.protocol import Answers, on_all

if TYPE_CHECKING:
    from launcher.hosts.ssh import SshAddress, SshHost

__all__ = ["connect_all"]


def connect_all(addresses: Sequence[SshAddress], workers: int = 16) -> Answers[SshHost]:
    """Connect to all hosts at once, through shared gateways.

    The caller closes the hosts. Raises InputError for an unusable ssh_config or key file.
    """
    from launcher.hosts.ssh import Connector, SshHost

    connector = Connector()
    return on_all(addresses, lambda address: SshHost.connect(address, connector), workers)
