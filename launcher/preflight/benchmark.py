"""Run the small real workload: each host for itself and in pairs, then all that passed; name who is slow or failed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher.agent.door import PORTS
from launcher.common.finding import Finding, unknown
from launcher.jobs.endpoint import usable_addresses
from launcher.preflight.checks.ports import used_interface
from launcher.preflight.checks.speed import SLOW_LINK, Answer, bandwidths, better_of, judge, judge_all
from launcher.preflight.look import Sight
from launcher.preflight.meeting import Meeting
from launcher.preflight.pairs import rounds

ROUNDS = 5  # opponents of each host: enough to tell a host from a link, few enough for thousands
PHASE_TIMEOUT_S = 20.0
START_S = 90.0  # importing torch on a cold file system


@dataclass(frozen=True)
class Measured:
    """What the hosts answered: alone and in pairs, then together; and what follows from it."""

    alone: Mapping[str, Answer] = field(default_factory=dict)
    together: Mapping[str, Answer] = field(default_factory=dict)
    findings: Sequence[Finding] = ()

    def to_json(self) -> dict[str, Any]:
        """Operations a second by host and device, GB/s of each pair, seconds of the all-reduce of all."""
        return {
            "products": {host: answer["products"] for host, answer in self.alone.items()},
            "pairs": [
                {"hosts": sorted(pair), "gbytes_per_s": round(rate / 1e9, 3)}
                for pair, rate in bandwidths(self.alone).items()
            ],
            "all": {host: answer["phases"][0] for host, answer in self.together.items()},
        }


def measure(sight: Sight, meeting: Meeting, found: Sequence[Finding]) -> Measured:
    """`found`: findings so far. Hosts with an error are left out: what is measured there would tell nothing new."""
    able = [name for name in sight.facts if name not in _with_errors(found) and name not in meeting.silent]
    phases = rounds(able, ROUNDS) if len(able) > 1 else []
    alone, silent = _run(sight, meeting, able, phases, alone=True)
    findings = list(judge(alone, sight.facts))
    if any(finding.code == SLOW_LINK for finding in findings):
        again, _ = _run(sight, meeting, list(alone), phases, alone=False)
        alone = better_of(alone, again)
        findings = list(judge(alone, sight.facts))
    good = [name for name in alone if name not in _with_errors(findings)]
    together: Mapping[str, Answer] = {}
    if len(good) > 2:
        together, lost = _run(sight, meeting, good, [[good]], alone=False)
        silent |= lost
        findings += judge_all(together)
    findings += [unknown(f"the speed of {host}: {why}", hosts=[host]) for host, why in silent.items()]
    return Measured(alone, together, findings)


def _with_errors(findings: Sequence[Finding]) -> set[str]:
    return {host for finding in findings if finding.severity == "error" for host in finding.hosts}


def _run(
    sight: Sight, meeting: Meeting, names: Sequence[str], phases: Sequence[Sequence[Sequence[str]]], alone: bool
) -> tuple[dict[str, Answer], dict[str, str]]:
    """Answers, and why hosts gave none."""
    limit = START_S + PHASE_TIMEOUT_S * sum(range(1, len(phases) + 2))
    port = random.choice(PORTS)
    met = {peer: about["address"] for answer in meeting.answers.values() for peer, about in answer["reached"].items()}
    addresses = {
        name: met.get(name) or next(iter(usable_addresses(sight.facts[name].addresses)), "127.0.0.1") for name in names
    }
    arguments = {
        name: {
            "name": name,
            "addresses": addresses,
            "port": port,
            "patience": PHASE_TIMEOUT_S,
            "interface": used_interface(sight.facts[name], meeting.answers.get(name, {})) if phases else "lo",
            "phases": phases,
            "alone": alone,
        }
        for name in names
    }
    answers = sight.ask(names, "exercise", arguments, timeout=limit)
    return answers.good, answers.reasons
