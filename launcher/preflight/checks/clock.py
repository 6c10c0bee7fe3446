"""Clocks of the hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.common.finding import Finding
from launcher.preflight.facts import HostFacts

TOLERATED_S = 2.0  # NTP keeps hosts within milliseconds; logs of two hosts cannot be ordered beyond this


def skew(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """Each clock beside the time on which most hosts, this machine among them, agree."""
    offsets = [0.0, *(facts.clock_offset for facts in hosts)]
    agreed = max(offsets, key=lambda one: (sum(abs(one - other) <= TOLERATED_S for other in offsets), -abs(one)))
    for facts in hosts:
        off = facts.clock_offset - agreed
        if abs(off) > TOLERATED_S + facts.clock_doubt:
            yield Finding(
                "preflight.clock_skew",
                "warning",
                f"The clock of {facts.host} is {abs(off):.0f} s {'ahead' if off > 0 else 'behind'}.",
                f"start chrony or systemd-timesyncd on {facts.host}; certificates, file times and logs depend on it",
                hosts=[facts.host],
                detail={"offset_s": round(off, 3), "known_within_s": round(facts.clock_doubt, 3)},
            )
