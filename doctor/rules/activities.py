"""What a rank said it was doing while its peers waited: saving, compiling, evaluating, preparing data. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.evidence.watchdog import WorkTimeout
from doctor.rules.events import events_of

ACTIVITIES: Mapping[str, str] = {
    "activity_checkpoint": "checkpoint",
    "activity_compile": "compile",
    "activity_evaluation": "rank0_only",
    "activity_data": "dataloader",
    "activity_lock": "file_lock",
}
DOING: Mapping[str, str] = {
    "checkpoint": "saving a checkpoint",
    "compile": "compiling",
    "rank0_only": "evaluating",
    "dataloader": "preparing or fetching data",
    "file_lock": "waiting for a lock file",
}
NEAR_LINES = 30  # so close before a timeout an activity counts where lines tell no time


def activity_of(first: WorkTimeout, evidence: EvidenceSet) -> LogEvent | None:
    """What a rank said it was doing when this wait began: the last such line before it."""
    near = [event for event in events_of(evidence, *ACTIVITIES) if _began_by(event, first)]
    return max(near, key=lambda event: (event.time or 0.0, event.line), default=None)


def _began_by(event: LogEvent, first: WorkTimeout) -> bool:
    """Whether an activity stood at the beginning of the wait: by the clock, else by the place of the lines."""
    if event.time is None or first.time is None:
        file, _, line = first.where.rpartition(":")
        return event.where.rpartition(":")[0] == file and 0 < int(line) - event.line <= NEAR_LINES
    if not first.ran_ms:
        return False
    began = first.time - first.ran_ms / 1000
    return began - 300 <= event.time <= first.time and event.time - began <= 0.2 * first.ran_ms / 1000


def activity_before(wait: LogEvent, evidence: EvidenceSet) -> LogEvent | None:
    """The last line shortly before that of a wait, in the same file, in which a rank says what it is doing."""
    file = wait.where.rpartition(":")[0]
    near = [
        event
        for event in events_of(evidence, *ACTIVITIES)
        if event.where.rpartition(":")[0] == file and 0 < wait.line - event.line <= NEAR_LINES
    ]
    return max(near, key=lambda event: event.line, default=None)


def came_back(doing: LogEvent, evidence: EvidenceSet) -> LogEvent | None:
    """The line in which the same writer says that it has finished what it was doing."""
    done = [event for event in events_of(evidence, "activity_done") if event.origin.rank == doing.origin.rank]
    file = doing.where.rpartition(":")[0]
    later = [event for event in done if event.where.rpartition(":")[0] == file and event.line > doing.line]
    return min(later, key=lambda event: event.line, default=None)
