"""Who only lost a peer, and who failed by itself: closed connections are victims', exceptions are causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.rules import Rule
from doctor.rules.events import events_of, ranks_of, said, sentence, who
from launcher.common.finding import Finding
from launcher.common.python_errors import is_echo

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


def own_errors(evidence: EvidenceSet) -> list[LogEvent]:
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
    for event in own_errors(evidence):
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
    Rule(("cascade.remote_error",), ("hang",), closed),
    Rule(("hang.absent_rank",), ("hang",), exceptions),
    Rule(("hang.absent_rank", "init.shm_full"), ("hang",), loaders),
)
