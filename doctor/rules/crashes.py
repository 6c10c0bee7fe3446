"""Crashes in native code that the process itself told: faulthandler's and Open MPI's last words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.rules import Rule
from doctor.rules.log_lines import events_of
from doctor.rules.victims import CRASHES, ends
from doctor.rules.writers import said, who
from launcher.common.finding import Finding


def crashes(evidence: EvidenceSet) -> Iterator[Finding]:
    """A crash that no launcher reported as the end of a rank."""
    if any(one.status in CRASHES for one in ends(evidence)):
        return
    groups: defaultdict[str, list[LogEvent]] = defaultdict(list)
    for event in evidence.once(events_of).get("crashed", ()):
        groups[event["what"]].append(event)
    for what, found in groups.items():
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
