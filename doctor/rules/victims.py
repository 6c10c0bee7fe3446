"""Who died first: closed connections, signals and launchers' reports are victims'; exceptions and kills are causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.evidence.watchdog import WorkTimeout
from doctor.rules import Rule
from doctor.rules.events import events_of, ranks_of, said, sentence, who
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding
from launcher.common.python_errors import is_echo

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
# Errors that only say that something else failed.
_WRAPPERS = (
    "ChildFailedError",
    "SignalException",
    "ProcessRaisedException",
    "ProcessExitedException",
    "DistBackendError",
    "DistStoreError",
    "DistNetworkError",
    "CalledProcessError",
    "KeyboardInterrupt",
    "SystemExit",
    "RayTaskError",
    "ActorDiedError",
)


@dataclass(frozen=True)
class Ended:
    """A rank's end as a launcher reported it."""

    rank: int | None
    status: int
    host: str | None
    event: LogEvent

    @property
    def name(self) -> str:
        return "a rank" if self.rank is None else f"rank {self.rank}"

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
    if aborted or (stopped and not killed and not crashed):
        yield _terminated(aborted or stopped)
    if not found and not evidence.of(WorkTimeout):
        yield from _stopped(evidence)
    if killed:
        yield _killed(killed)
    failed = [one for one in found if one.status > 0]
    if failed and not _own_errors(evidence):
        yield _failed(failed)
    for one in crashed:
        bus = one.status == -7
        yield Finding(
            "init.shm_full" if bus else "hang.absent_rank",
            "error",
            f"{one.name} ended with {one.how}: "
            + ("most often /dev/shm is full." if bus else "it crashed in native code."),
            (
                "df /dev/shm; docker --shm-size"
                if bus
                else "run it with python -X faulthandler and core dumps; dmesg shows the library"
            ),
            0.6,
            _rank(one),
            _host(one),
            detail={"sub_cause": "dead", "status": one.status},
            evidence=_quote([one]),
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


def _rank(*ended: Ended) -> tuple[int, ...]:
    return tuple(sorted({one.rank for one in ended if one.rank is not None}))


def _host(*ended: Ended) -> tuple[str, ...]:
    return tuple(sorted({one.host for one in ended if one.host}))


def _quote(ended: Sequence[Ended]) -> tuple[Evidence, ...]:
    return tuple(Evidence("launcher", one.event.where, one.event.text) for one in ended[:4])


def _named(ended: Sequence[Ended]) -> str:
    ranks = _rank(*ended)
    pids = sorted({one.event["pid"] for one in ended if one.event["pid"]})
    return name_ranks(ranks) if ranks else f"process {', '.join(pids[:4])}" if pids else "a rank"


def _terminated(ended: Sequence[Ended]) -> Finding:
    how = ended[0].how
    why = (
        "that is how torch's watchdog ends a rank that waited in vain: a victim"
        if ended[0].status == -6
        else "its launcher ended it after another's failure: a victim"
    )
    return Finding(
        "cascade.terminated",
        "error",
        f"{_named(ended)} ended with {how}: {why}. The cause is a rank that is silent here or failed before.",
        "look for the first error in the other ranks' logs, and for the rank that did not report at all",
        0.7,
        _rank(*ended),
        _host(*ended),
        detail={"status": ended[0].status},
        evidence=_quote(ended),
        missing=["logs, dumps or stacks of the ranks that are not in this report"],
    )


def _killed(ended: Sequence[Ended]) -> Finding:
    return Finding(
        "host.oom_killed",
        "error",
        f"{_named(ended)} was killed from outside (SIGKILL): most often by the kernel for want of host memory, else by"
        " a scheduler or a person.",
        "look at that host's kernel log (dmesg | grep -i 'killed process') and the cgroup's memory.events",
        0.5,
        _rank(*ended),
        _host(*ended),
        detail={"status": -9},
        evidence=_quote(ended),
        missing=["the kernel log of that host at that time"],
    )


def _failed(ended: Sequence[Ended]) -> Finding:
    return Finding(
        "hang.absent_rank",
        "error",
        f"{_named(ended)} ended with {ended[0].how}: an error of its own, of which its log tells, not this report.",
        "read that rank's log (torchrun --log-dir -r 3, or @record on main, brings its traceback into the report)",
        0.45,
        _rank(*ended),
        _host(*ended),
        detail={"sub_cause": "exception", "status": ended[0].status},
        evidence=_quote(ended),
        missing=["the log of the ranks that ended first"],
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


def closed(evidence: EvidenceSet) -> Iterator[Finding]:
    """Connections that a peer closed: whoever says so is a victim; the peer is named where the line does."""
    found = events_of(evidence, "peer_closed", "remote_error")
    broken = [
        event
        for event in events_of(evidence, "store_key_timeout")
        if any(mark in event["error"] for mark in ("eset", "roken", "closed"))
    ]
    found += broken
    if not found:
        return
    peers = sorted({event["peer"] for event in found if event["peer"]})
    store = " The store ended with the process that held it, on rank 0." if broken else ""
    yield said(
        found,
        "cascade.remote_error",
        sentence(
            f"{who(found)} lost the connection to {', '.join(peers[:6]) or 'a peer'}: that process ended or its network"
            f" broke first; those who report it are victims.{store}"
        ),
        f"look at {', '.join(peers[:6]) or 'the peer'}: its log's last lines, its exit status, its kernel log",
        0.8,
        peers=peers,
        missing=[f"the log of {', '.join(peers[:6])}" if peers else "the log of the rank that ended first"],
    )


def _own_errors(evidence: EvidenceSet) -> list[LogEvent]:
    """Exceptions that do not only say that something else failed."""
    return [
        event
        for event in events_of(evidence, "python_error")
        if event["error"].rpartition(".")[2] not in _WRAPPERS
        and not is_echo(f"{event['error']}: {event['message']}", None)
    ]


def exceptions(evidence: EvidenceSet) -> Iterator[Finding]:
    """Exceptions of the program: one rank's own error explains the others' waiting."""
    groups: defaultdict[str, list[LogEvent]] = defaultdict(list)
    for event in _own_errors(evidence):
        groups[f"{event['error']}: {event['message']}".removesuffix(": ")[:200]].append(event)
    traced = {event.origin for event in events_of(evidence, "traceback")}
    for error, found in groups.items():
        ranks = ranks_of(found)
        fatal = any(event.origin in traced for event in found)
        yield said(
            found,
            "hang.absent_rank",
            f"{who(found)} ended with an exception of its own, {error}; ranks that wait for it are victims.",
            "fix that error; if it is on one rank only, look at that rank's data and devices",
            (0.6 if ranks else 0.5) if fatal else 0.45,
            "error" if fatal else "warning",
            ranks=ranks,
            sub_cause="exception",
            error=error,
        )


def loaders(evidence: EvidenceSet) -> Iterator[Finding]:
    """Data loader workers that died or hang."""
    found = events_of(evidence, "worker_killed", "loader_timeout")
    if found:
        signal = next((event["signal"] for event in found if event["signal"]), "")
        bus = "Bus" in signal
        fate = "died of a bus error: /dev/shm is full" if bus else f"died or hangs{f' ({signal})' if signal else ''}"
        yield said(
            found,
            "init.shm_full" if bus else "hang.absent_rank",
            f"A data loader worker of {who(found)} {fate}.",
            (
                "grow /dev/shm"
                if bus
                else "num_workers=0 shows the worker's own error; check host memory (killed workers) and storage"
            ),
            0.75,
            sub_cause="dataloader",
        )
    unused = events_of(evidence, "ddp_unused")
    if unused:
        yield said(
            unused,
            "hang.absent_rank",
            f"{who(unused)} did not use all parameters in its last forward pass: DDP waits for gradients that never"
            " come.",
            "make all ranks take the same branch, or DDP(find_unused_parameters=True)",
            0.8,
            sub_cause="unused_parameter",
        )


RULES = (
    Rule(("cascade.terminated", "host.oom_killed", "init.shm_full", "hang.absent_rank"), ("hang",), launchers),
    Rule(("cascade.terminated", "host.oom_killed"), ("hang",), schedulers),
    Rule(("host.oom_killed",), ("hang",), ray_memory),
    Rule(("cascade.remote_error",), ("hang",), closed),
    Rule(("hang.absent_rank",), ("hang",), exceptions),
    Rule(("hang.absent_rank", "init.shm_full"), ("hang",), loaders),
)
