"""One preflight: look, check, compare with last time, let hosts meet, measure, judge, keep."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from launcher.common.finding import Finding
from launcher.inventory import Cluster
from launcher.preflight.benchmark import Measured, measure
from launcher.preflight.checks import run_checks
from launcher.preflight.checks.drift import Snapshot, drift, snapshot
from launcher.preflight.checks.ports import interfaces, reachability, without_answer
from launcher.preflight.kept import EXPIRY_S, keep, read_kept
from launcher.preflight.look import Sight, looked_at
from launcher.preflight.meeting import Meeting, hold_meeting
from launcher.preflight.result import Result, verdicts


@dataclass(frozen=True)
class Wish:
    """What is to be checked. `quick`: nothing is measured; `accept`: what the hosts have now is right from now on."""

    cluster_name: str
    cluster: Cluster
    inventory: str
    hosts: Sequence[str]
    quick: bool = False
    accept: bool = False
    say: Callable[[str], None] = field(default=lambda text: None)


def preflight(wish: Wish) -> Result:
    """Raises InputError and CannotActError only where nothing at all can be looked at."""
    before = read_kept(wish.cluster_name, wish.inventory)
    baseline: dict[str, Snapshot] = dict(before.get("baseline", {}))
    wish.say(f"looking at {len(wish.hosts)} hosts")
    with looked_at(wish.cluster, wish.hosts, before.get("bundles", {})) as sight:
        found = run_checks(list(sight.facts.values()))
        found += [] if wish.accept else _drift(sight, baseline, found)
        meeting = hold_meeting(sight) if len(sight.facts) > 1 else Meeting(0, {})
        found += _met(sight, meeting)
        measured = Measured()
        if not wish.quick and sight.facts:
            wish.say("measuring each host, then pairs, then all; --quick leaves this out")
            measured = measure(sight, meeting, found)
            found += measured.findings
    now = time.time()
    hosts = verdicts(sight.names, found, sight.silent)
    result = Result(wish.cluster_name, hosts, now, now + EXPIRY_S, measured.to_json())
    sound = _sound(sight, result, baseline, wish.accept)
    keep(result, wish.inventory, baseline | sound, {**before.get("bundles", {}), **sight.bundles})
    return result


def _drift(sight: Sight, baseline: dict[str, Snapshot], found: Sequence[Finding]) -> list[Finding]:
    """What is worse than last time, but for what the host's peers have told already."""
    told = {(finding.code, host) for finding in found for host in finding.hosts}
    worse = [one for name, facts in sight.facts.items() if name in baseline for one in drift(facts, baseline[name])]
    return [finding for finding in worse if (finding.code, finding.hosts[0]) not in told]


def _met(sight: Sight, meeting: Meeting) -> list[Finding]:
    found = list(reachability(meeting.answers, meeting.calls, meeting.port))
    for name, answer in meeting.answers.items():
        found += interfaces(sight.facts[name], answer)
    return found + [without_answer(host, why) for host, why in meeting.silent.items()]


def _sound(sight: Sight, result: Result, baseline: dict[str, Snapshot], accept: bool) -> dict[str, Snapshot]:
    """What becomes the new measure: a host that is good, or seen for the first time; a worse one keeps its old one."""
    good = {host.host for host in result.hosts if host.verdict == "good"}
    return {
        name: snapshot(facts, result.time)
        for name, facts in sight.facts.items()
        if accept or name in good or name not in baseline
    }
