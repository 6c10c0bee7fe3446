"""What launchers and schedulers say of ranks that ended: who crashed, was killed, was stopped, or failed by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.evidence.watchdog import WorkTimeout
from doctor.rules import Rule
from doctor.rules.events import by_fields, events_of, said, who
from doctor.rules.victims import own_errors
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding

SIGNALS = {
    -1: "SIGHUP",
    -2: "SIGINT",
    -4: "SIGILL",
    -6: "SIGABRT",
    -7: "SIGBUS",
    -8: "SIGFPE",
    -9: "SIGKILL",
    -11: "SIGSEGV",
    -15: "SIGTERM",
}
CRASHES = frozenset((-4, -7, -8, -11))
BUS_ERROR = -7


@dataclass(frozen=True)
class Ended:
    """A rank's end as a launcher reported it."""

    rank: int | None
    status: int
    host: str | None
    event: LogEvent

    @property
    def how(self) -> str:
        return f"exit status {self.status}" if self.status not in SIGNALS else f"{SIGNALS[self.status]} ({self.status})"


def ends(evidence: EvidenceSet) -> list[Ended]:
    """Ends of ranks in the order of the reports: torchrun's blocks give host and rank on lines before the status."""
    parts = events_of(evidence, "report_host", "report_rank", "rank_status")
    found: list[Ended] = []
    rank: LogEvent | None = None
    host: LogEvent | None = None
    for event in sorted(parts, key=lambda one: (one.where.rpartition(":")[0], one.line)):
        if event.kind == "report_host":
            host = event
        elif event.kind == "report_rank":
            rank = event
        else:
            near = rank if rank is not None and 0 < event.line - rank.line <= 4 else None
            place = host["name"] if host is not None and 0 < event.line - host.line <= 5 else None
            found.append(Ended(int(near["rank"]) if near else event.origin.rank, int(event["status"]), place, event))
    for event in events_of(evidence, "rank_ended"):
        if not any(one.event["pid"] == event["pid"] for one in found):
            found.append(Ended(event.origin.rank, int(event["status"]), event.origin.host, event))
    for event in events_of(evidence, "rank_gone"):
        status = int(
            event["status"] or next((number for number, name in SIGNALS.items() if name == event["signal"]), 1)
        )
        found.append(Ended(int(event["rank"]) if event["rank"] else None, status, event.origin.host, event))
    return found


def launchers(evidence: EvidenceSet) -> Iterator[Finding]:
    """What torchrun, srun and mpirun say of ranks that ended."""
    found = ends(evidence)
    aborted = [one for one in found if one.status == -6]
    stopped = [one for one in found if one.status == -15]
    killed = [one for one in found if one.status == -9]
    crashed = [one for one in found if one.status in CRASHES]
    failed = [one for one in found if one.status > 0]
    if aborted or (stopped and not killed and not crashed):
        yield _terminated(aborted or stopped)
    if not found and not evidence.of(WorkTimeout):
        yield from _stopped(evidence)
    if killed:
        yield _killed(killed)
    if failed and not own_errors(evidence):
        yield _failed(failed)
    for one in crashed:
        code, why, fix = _crash(one.status == BUS_ERROR)
        yield _told([one], code, f"ended with {one.how}: {why}.", fix, 0.6, sub_cause="dead")
    if not crashed:
        yield from _crashes(evidence)


def _crashes(evidence: EvidenceSet) -> Iterator[Finding]:
    """Crashes in native code that no launcher reported: faulthandler's and Open MPI's last words of a process."""
    for (what,), found in by_fields(events_of(evidence, "crashed"), "what").items():
        code, why, fix = _crash(what == "Bus error")
        yield said(found, code, f"{who(found)} ended by a {what}: {why}.", fix, 0.6, sub_cause="dead")


def _crash(by_bus_error: bool) -> tuple[str, str, str]:
    """(code, why, fix)"""
    if by_bus_error:
        return "init.shm_full", "most often /dev/shm is full", "df /dev/shm; grow it (docker --shm-size, --ipc=host)"
    return (
        "hang.absent_rank",
        "it crashed in native code, and ranks that wait for it are victims",
        "the stack in its log names the call (python -X faulthandler), a core dump (gdb) or dmesg the library",
    )


def _stopped(evidence: EvidenceSet) -> Iterator[Finding]:
    """Processes that were asked to end."""
    hung_up = [event for event in events_of(evidence, "got_signal") if event["signal"] in ("1", "SIGHUP")]
    got = [event for event in events_of(evidence, "got_signal") if event["signal"] in ("15", "SIGTERM")]
    if hung_up:
        yield said(
            hung_up,
            "cascade.terminated",
            f"{who(hung_up)} was ended by SIGHUP: the terminal or ssh session that had started it was closed.",
            "start it below tmux, nohup or a scheduler, so that it outlives the session",
            0.7,
        )
    elif signals := [*got, *events_of(evidence, "sent_sigterm")]:
        yield said(
            signals,
            "cascade.terminated",
            f"{who(signals)} was ended by SIGTERM: its launcher or the scheduler stopped it, after another's failure or"
            " on request.",
            "look for the first error in the other ranks' logs, and at the scheduler's reason",
            0.5,
            missing=["the logs of the ranks that ended before"],
        )


def _told(
    ended: Sequence[Ended],
    code: str,
    how: str,
    fix: str,
    confidence: float,
    missing: Sequence[str] = (),
    **detail: Any,
) -> Finding:
    """A finding on ranks of which a launcher reported the end."""
    ranks = tuple(sorted({one.rank for one in ended if one.rank is not None}))
    pids = sorted({one.event["pid"] for one in ended if one.event["pid"]})
    named = name_ranks(ranks) if ranks else f"process {', '.join(pids[:4])}" if pids else "a rank"
    return Finding(
        code,
        "error",
        f"{named} {how}",
        fix,
        confidence,
        ranks,
        tuple(sorted({one.host for one in ended if one.host})),
        detail={"status": ended[0].status} | detail,
        evidence=tuple(Evidence("launcher", one.event.where, one.event.text) for one in ended[:4]),
        missing=missing,
    )


def _terminated(ended: Sequence[Ended]) -> Finding:
    why = (
        "that is how torch's watchdog ends a rank that waited in vain: a victim"
        if ended[0].status == -6
        else "its launcher ended it after another's failure: a victim"
    )
    return _told(
        ended,
        "cascade.terminated",
        f"ended with {ended[0].how}: {why}. The cause is a rank that is silent here or failed before.",
        "look for the first error in the other ranks' logs, and for the rank that did not report at all",
        0.7,
        ["logs, dumps or stacks of the ranks that are not in this report"],
    )


def _killed(ended: Sequence[Ended]) -> Finding:
    return _told(
        ended,
        "host.oom_killed",
        "was killed from outside (SIGKILL): most often by the kernel for want of host memory, else by a scheduler or a"
        " person.",
        "look at that host's kernel log (dmesg | grep -i 'killed process') and the cgroup's memory.events",
        0.5,
        ["the kernel log of that host at that time"],
    )


def _failed(ended: Sequence[Ended]) -> Finding:
    return _told(
        ended,
        "hang.absent_rank",
        f"ended with {ended[0].how}: an error of its own, of which its log tells, not this report.",
        "read that rank's log (torchrun --log-dir -r 3, or @record on main, brings its traceback into the report)",
        0.45,
        ["the log of the ranks that ended first"],
        sub_cause="exception",
    )


def schedulers(evidence: EvidenceSet) -> Iterator[Finding]:
    for event in events_of(evidence, "slurm_cancelled"):
        reason = event["reason"].strip().lower()
        yield said(
            [event],
            "cascade.terminated",
            f"Slurm ended {event['job']} on {event['node']}" + (f" due to {reason}." if reason else " (cancelled)."),
            "time limit: checkpoint and ask for more; node failure: look at that node; else look for the first error"
            " before it",
            0.75 if reason else 0.5,
            "error" if reason else "warning",
            ranks=(),
            hosts=(event["node"],),
            reason=reason,
        )
    for event in events_of(evidence, "task_exit", "mpi_exit"):
        what = event["what"] or (f"signal {event['signal']}" if event["signal"] else "")
        ended = what == "Killed" and any(one["node"] == event["node"] for one in events_of(evidence, "slurm_cancelled"))
        if not ended and ("Memory" in what or what in ("Killed", "signal 9")):
            sure = 0.9 if "Memory" in what else 0.5
            whose = (
                f"rank {event['rank']}" if event["rank"] else f"task {event['tasks']}" if event["tasks"] else "a task"
            )
            yield said(
                [event],
                "host.oom_killed",
                f"{whose} on {event['node']} was killed ({what}).",
                "ask for more memory; look at that host's kernel log",
                sure,
                ranks=(int(event["rank"]),) if event["rank"] else (),
                hosts=(event["node"],) if event["node"] else (),
            )


def ray_memory(evidence: EvidenceSet) -> Iterator[Finding]:
    """Ray ends the youngest worker of a node whose memory runs out."""
    found = events_of(evidence, "ray_memory")
    if found:
        nodes = sorted({event["node"] for event in found if event["node"]})
        yield said(
            found,
            "host.oom_killed",
            f"Ray ended a worker because host memory ran out{' on ' + ', '.join(nodes[:4]) if nodes else ''}.",
            "give each worker less to hold or the node more memory; RAY_memory_usage_threshold only moves the limit",
            0.85,
            hosts=nodes,
        )


RULES = (
    Rule(("cascade.terminated", "host.oom_killed", "init.shm_full", "hang.absent_rank"), ("hang",), launchers),
    Rule(("cascade.terminated", "host.oom_killed"), ("hang",), schedulers),
    Rule(("host.oom_killed",), ("hang",), ray_memory),
)
