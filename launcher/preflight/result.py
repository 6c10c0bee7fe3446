"""From findings to a verdict for each host, as a document and for people. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from launcher.common.finding import Evidence, Finding, unknown
from launcher.errors import CannotActError
from launcher.hosts.names import fold

HostState = Literal["good", "bad", "unknown"]
LIKEWISE = 2  # findings of one kind that are told beside the first
NO_SPACE = "No space left on device"


@dataclass(frozen=True)
class HostVerdict:
    """`good`: nothing of severity warning or worse; `unknown`: not looked at. `not_seen`: what could not be seen."""

    host: str
    verdict: HostState
    findings: Sequence[Finding] = ()
    not_seen: Sequence[Finding] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "unknown": [finding.to_json() for finding in self.not_seen],
        }


@dataclass(frozen=True)
class Result:
    """Verdicts in the inventory's order; times in seconds since the epoch."""

    cluster: str
    hosts: Sequence[HostVerdict]
    time: float
    expires: float
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_status(self) -> int:
        """DESIGN §5: 1 for a finding of severity warning or worse, 3 where a host could not be looked at, else 0."""
        states = {host.verdict for host in self.hosts}
        return 1 if "bad" in states else 3 if "unknown" in states else 0

    def to_json(self) -> dict[str, Any]:
        return {
            "cluster": self.cluster,
            "hosts": [host.to_json() for host in self.hosts],
            "time": self.time,
            "expires": self.expires,
            "measured": dict(self.measured),
        }


def verdicts(
    names: Sequence[str], findings: Sequence[Finding], silent: Mapping[str, CannotActError]
) -> list[HostVerdict]:
    """Each host with the findings that name it, gravest first, and what could not be seen of it."""
    return [_silent(name, silent[name]) if name in silent else _verdict(name, findings) for name in names]


def _verdict(host: str, findings: Sequence[Finding]) -> HostVerdict:
    about = sorted((finding for finding in findings if host in finding.hosts), key=_gravity)
    found = [finding for finding in about if finding.code != "unknown"]
    bad = any(finding.severity != "info" for finding in found)
    return HostVerdict(host, "bad" if bad else "good", found, [one for one in about if one.code == "unknown"])


def _gravity(finding: Finding) -> int:
    return ("error", "warning", "info").index(finding.severity)


def _silent(host: str, error: CannotActError) -> HostVerdict:
    """A host that gave no answer; a full disk is the one reason that we can name for sure."""
    if NO_SPACE in error.message:
        full = Finding(
            "host.disk_full",
            "error",
            f"{host} cannot take our node side: {error.message}",
            "make room in the home folder",
            hosts=[host],
            evidence=[Evidence("error", host, error.message)],
        )
        return HostVerdict(host, "bad", [full])
    return HostVerdict(host, "unknown", [unknown(f"{host} gave no answer: {error}", hosts=[host])])


def lines(result: Result) -> list[str]:
    """What a person reads: each kind of finding once with all its hosts, then the hosts by verdict."""
    shown = [line for findings in _alike(result) for line in _finding_lines(findings)]
    for state in ("bad", "unknown", "good"):
        hosts = [host.host for host in result.hosts if host.verdict == state]
        if hosts:
            shown.append(f"{state:8} {fold(hosts)}")
    shown += _unseen_lines(result)
    shown += _measured_lines(result.measured)
    until = time.strftime("%d %b %H:%M", time.localtime(result.expires))
    return [*shown, f"kept until {until} for: dlaunch run --exclude-bad"]


def _alike(result: Result) -> Iterator[list[Finding]]:
    """Findings of one kind together, each once though it may stand with several hosts; the gravest kind first."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for host in result.hosts:
        for finding in host.findings:
            group = groups.setdefault((finding.severity, finding.code), [])
            if finding not in group:
                group.append(finding)
    yield from sorted(groups.values(), key=lambda group: _gravity(group[0]))


def _finding_lines(alike: Sequence[Finding]) -> list[str]:
    """The first of a kind in full; of more than a few others only the hosts."""
    first, *others = alike
    shown = [f"{first.severity:8} {first.code}: {first.cause}", *([f"{'':8} fix: {first.fix}"] if first.fix else [])]
    if len(others) <= LIKEWISE:
        return shown + [f"{'':8} also: {finding.cause}" for finding in others]
    return [*shown, f"{'':8} also on {fold(host for finding in others for host in finding.hosts)}"]


def _unseen_lines(result: Result) -> list[str]:
    """What could not be seen; the same of several hosts on one line."""
    groups: dict[str, list[str]] = {}
    for host in result.hosts:
        for finding in host.not_seen:
            groups.setdefault(finding.cause.replace(host.host, "*"), []).append(host.host)
    return [f"not seen {cause.replace('*', fold(hosts))}" for cause, hosts in groups.items()]


def _measured_lines(measured: Mapping[str, Any]) -> list[str]:
    rates = sorted(pair["gbytes_per_s"] for pair in measured.get("pairs", ()))
    return [f"pairs    {len(rates)} measured: {rates[0]:.3g} to {rates[-1]:.3g} GB/s"] if rates else []
