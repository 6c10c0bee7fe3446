"""Pods of Kubernetes that do not run: their ranks are what the others wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.rules import Rule
from doctor.rules.events import events_of, said
from launcher.common.finding import Finding

_DESCRIBE = "kubectl describe pod tells why; kubectl logs --previous has the words of one that crashed"


def pods(evidence: EvidenceSet) -> Iterator[Finding]:
    """Listings of pods and the events of those that cannot start."""
    listed, reasons = events_of(evidence, "pod_state"), events_of(evidence, "pod_waits")
    crashed = [event for event in listed if event["state"].startswith("Crash")]
    waiting = [event for event in listed if event not in crashed]
    why = f" ({reasons[0]['what']})" if reasons else ""
    if crashed:
        yield said(
            crashed,
            "hang.absent_rank",
            f"{_names(crashed)} starts and ends again and again (CrashLoopBackOff): it has an error of its own.",
            _DESCRIBE,
            0.65,
            ranks=(),
        )
    if waiting or reasons:
        states = ", ".join(sorted({event["state"] for event in waiting}))
        who = f"{_names(waiting)} does not run yet: {states}" if waiting else "A pod of the job cannot start"
        yield said(
            [*waiting, *reasons],
            "hang.rendezvous",
            f"{who}{why}. The others wait for it.",
            _DESCRIBE,
            0.65 if reasons or len(listed) > 1 else 0.5,
            ranks=(),
        )


def _names(events: Sequence[LogEvent]) -> str:
    names = sorted({event["pod"] for event in events})
    return "pod " + ", ".join(names[:6]) + (" and others" if len(names) > 6 else "")


RULES = (Rule(("hang.absent_rank", "hang.rendezvous"), ("hang",), pods),)
