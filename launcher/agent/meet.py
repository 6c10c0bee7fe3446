"""Every host listens and connects at the same time: who reaches whom, on a port that a job would use.

All hosts run this at once, so none has to be started first; each ends as soon as all that it waits for has happened.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 5.0
PAUSE_S = 0.1
LONGEST_LINE = 512


@dataclass
class Meeting:
    """What this host has seen so far; each thread writes only its own keys."""

    nonce: str
    name: str
    deadline: float
    reached: dict[str, dict[str, str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()


def meet(
    nonce: str, name: str, port: int, peers: Mapping[str, Sequence[str]], expected: Sequence[str], seconds: float
) -> dict[str, Any]:
    """Listen on `port` and connect to an address of each of `peers`, until all are reached and `expected` have come.

    `{"reached": {peer: {"address", "local"}}, "failed": {peer: why}, "seen": [names]}`, or `{"taken": why}` when
    another program has the port.
    """
    meeting = Meeting(nonce, name, time.monotonic() + seconds)
    try:
        server = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    except (OSError, ValueError):
        try:
            server = socket.create_server(("", port), backlog=128)
        except OSError as error:
            return {"taken": str(error)}
    with server:
        callers = [threading.Thread(target=_call, args=(meeting, *peer, port), daemon=True) for peer in peers.items()]
        for caller in callers:
            caller.start()
        _answer(server, meeting, set(expected))
        for caller in callers:
            caller.join(max(0.0, meeting.left) + CONNECT_TIMEOUT_S)
    return {"reached": meeting.reached, "failed": meeting.failed, "seen": sorted(meeting.seen)}


def _call(meeting: Meeting, peer: str, addresses: Sequence[str], port: int) -> None:
    """Try the addresses in turn until one answers; a refusal may only mean that the peer has not begun."""
    why = "it has no address"
    while addresses and meeting.left > 0:
        for address in addresses:
            try:
                meeting.reached[peer] = {"address": address, "local": _greet(meeting, address, port)}
                return
            except OSError as error:
                why = f"{address}: {error.strerror or error}"
        time.sleep(PAUSE_S)
    meeting.failed[peer] = why


def _greet(meeting: Meeting, address: str, port: int) -> str:
    """Tell our name and hear the nonce; returns our end's address. Raises OSError."""
    with socket.create_connection((address, port), CONNECT_TIMEOUT_S) as connection:
        connection.sendall(f"{meeting.nonce} {meeting.name}\n".encode())
        connection.settimeout(ANSWER_TIMEOUT_S)
        if connection.makefile("rb").readline(LONGEST_LINE).decode(errors="replace").strip() != meeting.nonce:
            raise OSError("another program answers there")
        return str(connection.getsockname()[0]).removeprefix("::ffff:")


def _answer(server: socket.socket, meeting: Meeting, expected: set[str]) -> None:
    while not expected <= meeting.seen and meeting.left > 0:
        server.settimeout(meeting.left)
        with suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.settimeout(ANSWER_TIMEOUT_S)
                words = connection.makefile("rb").readline(LONGEST_LINE).decode(errors="replace").split()
                if len(words) == 2 and words[0] == meeting.nonce:
                    meeting.seen.add(words[1])
                    connection.sendall(f"{meeting.nonce}\n".encode())
