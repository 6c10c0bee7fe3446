"""Calls of the node side's commands (`launcher/agent/__main__.py`) on a host."""

from __future__ import annotations

import json
from typing import Any

from launcher.errors import CannotActError
from launcher.hosts.protocol import DEFAULT_TIMEOUT_S, Host


def call(
    host: Host, python: str, bundle: str, command: str, timeout: float = DEFAULT_TIMEOUT_S, **arguments: Any
) -> Any:
    """Run a command of the node side; returns its JSON answer. Raises HostError, or CannotActError with its words."""
    done = host.run([python, bundle, command], input=json.dumps(arguments).encode(), timeout=timeout)
    if done.status:
        raise CannotActError(f"{host.name}: {command} failed: {done.last_words}")
    return json.loads(done.stdout)
