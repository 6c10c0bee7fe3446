"""Crashes in native code that the process itself told: faulthandler's and Open MPI's last words."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.rules import Rule
from doctor.rules.events import by_fields, events_of, said, who
from doctor.rules.victims import CRASHES, ends
from launcher.common.finding import Finding


def crashes(evidence: EvidenceSet) -> Iterator[Finding]:
    """A crash that no launcher reported as the end of a rank."""
    if any(one.status in CRASHES for one in ends(evidence)):
        return
    for (what,), found in by_fields(events_of(evidence, "crashed"), "what").items():
        bus = what == "Bus error"
        yield said(
            found,
            "init.shm_full" if bus else "hang.absent_rank",
            f"{who(found)} crashed in native code ({what}): "
            + ("most often /dev/shm is full." if bus else "ranks that wait for it are victims."),
            (
                "df /dev/shm; grow it (docker --shm-size, --ipc=host)"
                if bus
                else "the stack below that line names the call; get a core dump (gdb) of that process for the library"
            ),
            0.6,
            sub_cause="dead",
        )


RULES = (Rule(("hang.absent_rank", "init.shm_full"), ("hang",), crashes),)
