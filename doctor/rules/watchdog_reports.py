"""torch's own desync report, and watchdogs that are stuck themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.evidence.watchdog import DesyncLine, DesyncState, GroupProgress, WorkTimeout
from doctor.rules import Rule
from doctor.rules.events import events_of
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding, unknown

_TOLD = re.compile(r"dump signal due to a collective timeout from\s+rank (\d+)")
FIX_BRANCH = (
    "look for a branch, loop length or exception that not all ranks share (logging, evaluation, saving on one rank)"
)


def report(evidence: EvidenceSet) -> Iterator[Finding]:
    """torch's own desync report: who lags, and what the others have started. Its numbers are not the watchdog's."""
    lines = evidence.of(DesyncLine)
    states = {(one.seq, one.state, tuple(one.ranks), one.op) for one in evidence.of(DesyncState)}
    lagging = sorted({rank for one in lines if one.finished is not None for rank in one.ranks})
    said: list[DesyncLine | DesyncState] = [*lines, *evidence.of(DesyncState)]
    quotes = tuple(Evidence("watchdog", one.where, one.text) for one in said[:8])
    started = {(seq, op): ranks for seq, state, ranks, op in states if state == "started"}
    snapshot = "; ".join(f"{name_ranks(ranks)} started {op} #{seq}" for (seq, op), ranks in sorted(started.items())[:6])
    if lagging:
        first = min((one for one in lines if one.finished is not None), key=lambda one: one.finished or 0)
        yield Finding(
            "hang.absent_rank",
            "error",
            f"{name_ranks(lagging)} finished collective #{first.finished} and did not join #{first.missing}"
            + (f", while {snapshot}." if snapshot else "."),
            "look at the stack of the lagging rank (py-spy dump) and its last log lines",
            0.85,
            tuple(lagging),
            detail={"finished": first.finished, "missing": first.missing},
            evidence=quotes,
        )
    elif len(started) > 1:
        yield Finding(
            "hang.desync",
            "error",
            f"Ranks are in different collectives: {snapshot}.",
            FIX_BRANCH,
            0.8,
            detail={"states": sorted(map(str, states))},
            evidence=quotes,
        )
    elif lines:
        joined = sorted({rank for one in lines for rank in one.ranks})
        yield Finding(
            "hang.stalled_collective",
            "error",
            f"{name_ranks(joined)} joined collective #{lines[0].missing} and did not finish it"
            + (f" ({snapshot})." if snapshot else "."),
            "look at network and device of these ranks",
            0.6,
            tuple(joined),
            detail={"seq": lines[0].missing},
            evidence=quotes,
        )


def told(evidence: EvidenceSet) -> Iterator[Finding]:
    """Ranks that a peer's timeout made dump: the peer is where to look, if its own lines are not there."""
    if evidence.of(WorkTimeout):
        return
    heard = [(one, int(first[1])) for one in evidence.of(GroupProgress) if (first := _TOLD.search(one.text))]
    if heard:
        firsts = sorted({rank for _, rank in heard})
        yield unknown(
            f"{name_ranks(firsts)} timed out first in a collective and told the others to dump: which call that was,"
            " its own log tells.",
            [f"log and flight recorder dump of {name_ranks(firsts)}, and dumps of the others"],
            tuple(Evidence("watchdog", one.where, one.text) for one, _ in heard[:4]),
        )


def blocked(evidence: EvidenceSet) -> Iterator[Finding]:
    """The watchdog thread itself does not move."""
    found = events_of(evidence, "heartbeat_stuck")
    if not found:
        return
    ranks = tuple(sorted({event.origin.rank for event in found if event.origin.rank is not None}))
    seconds = max((int(event["seconds"]) for event in found if event["seconds"]), default=None)
    works = max((int(event["works"]) for event in found if event["works"]), default=None)
    facts = [
        f"no heartbeat for {seconds} s" if seconds else "",
        f"{works} works in its list" if works is not None else "",
    ]
    listed = ", ".join(fact for fact in facts if fact)
    when = [event.time for event in found if event.time is not None]
    yield Finding(
        "hang.watchdog_blocked",
        "error",
        f"The watchdog thread of {name_ranks(ranks) if ranks else 'a rank'} is stuck"
        f" itself{' (' + listed + ')' if listed else ''}: a CUDA or NCCL call in it does not return, or another thread"
        " holds the GIL inside one. It says nothing about which collective hangs.",
        "native stacks of that process (py-spy dump --native, gdb): look at the watchdog thread and the GIL's owner; at"
        " the end of a job destroy the process group on all ranks together",
        0.8,
        ranks,
        detail={"seconds": seconds, "works": works} | ({"time": min(when)} if when else {}),
        evidence=tuple(Evidence("watchdog", event.where, event.text) for event in found[:4]),
    )


RULES = (Rule(("hang.watchdog_blocked",), ("hang",), blocked), Rule((), ("hang",), told))
