"""Let all hosts listen and call each other at the same moment, on a port of the range that jobs use."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.agent.door import PORTS
from launcher.jobs.endpoint import usable_addresses
from launcher.preflight.look import Sight
from launcher.preflight.pairs import callees

PATIENCE_S = 8.0
PATIENCE_PER_HOST_S = 0.1  # many hosts do not start at the same moment
TRIES = 3


@dataclass(frozen=True)
class Meeting:
    """The answers by host, the hosts that could not take part, who was to call whom, and the port."""

    port: int
    calls: Mapping[str, list[str]]
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)


def hold_meeting(sight: Sight) -> Meeting:
    """All hosts that were looked at; another port is tried where some other program has this one."""
    for _ in range(TRIES):
        meeting = _hold(sight, random.choice(PORTS))
        taken = {host: answer["taken"] for host, answer in meeting.answers.items() if "taken" in answer}
        if not taken:
            return meeting
    sound = {host: answer for host, answer in meeting.answers.items() if host not in taken}
    return Meeting(meeting.port, meeting.calls, sound, {**meeting.silent, **taken})


def _hold(sight: Sight, port: int) -> Meeting:
    names = list(sight.facts)
    calls = callees(names)
    addresses = {name: usable_addresses(sight.facts[name].addresses) for name in names}
    seconds = PATIENCE_S + PATIENCE_PER_HOST_S * len(names)
    shared = {"nonce": secrets.token_hex(8), "port": port, "seconds": seconds}
    arguments = {
        name: {
            **shared,
            "name": name,
            "peers": {peer: addresses[peer] for peer in calls[name]},
            "expected": [other for other in names if name in calls[other]],
        }
        for name in names
    }
    answers = sight.ask(names, "meet", arguments, timeout=seconds + 30)
    return Meeting(port, calls, answers.good, answers.reasons)
