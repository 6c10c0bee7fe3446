"""NCCL's RAS: who is behind (not who is listed), who is missing or dead, who reports errors, who has left."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.evidence.ras import RasComm, RasCount, RasReport
from doctor.rules import Rule, healthy
from doctor.text import fold, name_ranks, plural
from launcher.common.finding import Evidence, Finding

NEAR = 1  # counts this close may be equal a moment later
REMOTE = "Remote process error"


def find(evidence: EvidenceSet) -> Iterator[Finding]:
    for report in evidence.of(RasReport):
        found = list(_gone(report))
        for comm in report.comms:
            found += [*_behind(report, comm), *_status(report, comm), *_errors(report, comm)]
        yield from found
        if not found and report.agrees:
            yield healthy(
                f"RAS ({report.where}): launch counts agree in all communicators; it cannot see a stalled transport"
            )


def _gone(report: RasReport) -> Iterator[Finding]:
    """Processes and ranks that RAS cannot reach."""
    dead = [*report.dead, *(peer for event, peer in report.events if event == "PEER_DEAD")]
    lost = [*report.missing, *(peer for comm in report.comms for peer in comm.missing if peer not in report.dead)]
    ranks = sorted(
        {rank for comm in report.comms for rank in comm.missing_ranks}
        | {peer.rank for peer in (*dead, *lost) if peer.rank is not None}
    )
    if not dead and not lost and not ranks:
        return
    peers = dead or lost
    hosts = tuple(sorted({peer.host for peer in peers}))
    processes = ", ".join(
        sorted(
            {
                f"process {peer.pid} on {peer.host}" + (f" (GPU {peer.gpu})" if peer.gpu is not None else "")
                for peer in peers
            }
        )
    )
    state = "is considered dead" if dead else "does not answer"
    named = f"{name_ranks(ranks)}: " if ranks else ""
    yield Finding(
        "hang.absent_rank",
        "error",
        f"{named}{processes or 'the process'} {state}, says RAS; the others wait for it.",
        "look at that process: its last log lines, exit status, kernel log; if it lives, its stack (py-spy dump)",
        0.9 if dead else 0.75,
        tuple(ranks),
        hosts,
        detail={"sub_cause": "dead" if dead else "stopped", "processes": processes},
        evidence=(
            Evidence("ras", report.where, f"{'DEAD' if dead else 'INCOMPLETE'}: {processes or name_ranks(ranks)}"),
        ),
    )


def _behind(report: RasReport, comm: RasComm) -> Iterator[Finding]:
    counts = [one for one in comm.counts if one.count is not None]
    if comm.problem != "MISMATCH" or len({one.count for one in counts}) < 2:
        return
    low = min(counts, key=lambda one: one.count or 0)
    top = max(counts, key=lambda one: one.count or 0)
    ahead = [one for one in counts if one is not low]
    ranks = _ranks(low)
    gap = (top.count or 0) - (low.count or 0)
    op = comm.op or "collective"
    who = name_ranks(ranks) if ranks else _unlisted(low, ahead)
    yield Finding(
        "hang.absent_rank",
        "warning" if gap <= NEAR else "error",
        f"{who} {'is' if low.ranks == 1 else 'are'} behind: launched up to {op} operation {low.count}, while"
        f" {plural(top.ranks, 'rank')} launched {top.count}. RAS lists the minority, which may be the ranks ahead;"
        " those behind are the ones to look at"
        + ("; a difference of one may be gone a moment later." if gap <= NEAR else "."),
        "ask RAS again after some seconds: if the counts stay, look at the stacks of the ranks behind",
        0.6 if gap <= NEAR else 0.75,
        ranks,
        _hosts(low),
        detail={"communicator": comm.identity, "behind": low.count, "ahead": top.count, "op": op},
        evidence=(Evidence("ras", report.where, f"{low.ranks} ranks at {low.count}, {top.ranks} at {top.count}"),),
    )


def _unlisted(low: RasCount, ahead: list[RasCount]) -> str:
    known = _ranks(*ahead)
    return f"the {plural(low.ranks, 'rank')} other than {fold(known)}" if known else plural(low.ranks, "rank")


def _status(report: RasReport, comm: RasComm) -> Iterator[Finding]:
    """Ranks of one communicator in different states: some make it or run in it, others have left it or never came."""
    by_status = {one.status: one for one in comm.counts if one.status}
    gone = next((by_status[name] for name in ("FINALIZE", "ABORT", "DESTROY", "NOCOMM") if name in by_status), None)
    running, making = by_status.get("RUNNING"), by_status.get("INIT")
    if running and gone:
        fix = "destroy the process group on all ranks at the same point of the program"
        yield _apart(report, comm, running, gone, "hang.teardown", running, fix)
    elif making and gone and gone.status == "NOCOMM":
        fix = "look at the stacks of the ranks that have not come to it: they may be making another group"
        yield _apart(report, comm, making, gone, "hang.rendezvous", gone, fix)


def _apart(
    report: RasReport, comm: RasComm, here: RasCount, gone: RasCount, code: str, late: RasCount, fix: str
) -> Finding:
    does = "running in" if here.status == "RUNNING" else "making"
    return Finding(
        code,
        "warning",
        f"RAS sees {_named(here)} {does} communicator {comm.identity}, and {_named(gone)} "
        + ("not in it." if gone.status == "NOCOMM" else "at its end."),
        fix,
        0.6,
        _ranks(late),
        _hosts(late),
        detail={"communicator": comm.identity},
        evidence=(Evidence("ras", report.where, f"{comm.identity}: {gone.status} and {here.status}"),),
    )


def _errors(report: RasReport, comm: RasComm) -> Iterator[Finding]:
    """NCCL's own errors: a remote one is news of a peer, any other is of the rank that reports it."""
    if comm.problem != "ERROR":
        return
    own = [one for one in comm.counts if one.status != REMOTE]
    told = "; ".join(f"{_named(one)}: {one.status}" for one in comm.counts) or "it does not say which"
    whose = f"those of {' and '.join(map(_named, own))} are their own" if own else "all are news of a peer that failed"
    yield Finding(
        "cascade.remote_error",
        "warning",
        f"RAS tells of errors in communicator {comm.identity} ({told}): {whose}.",
        "look at the first error in the logs of these ranks (NCCL_DEBUG=WARN)"
        if own
        else "look for a rank that has ended or does not answer: its log has the first error",
        0.6 if own else 0.5,
        _ranks(*own or comm.counts),
        _hosts(*own or comm.counts),
        detail={"communicator": comm.identity},
        evidence=(Evidence("ras", report.where, f"{comm.identity} ERROR: {told}"),),
    )


def _ranks(*counts: RasCount) -> tuple[int, ...]:
    return tuple(sorted({peer.rank for one in counts for peer in one.listed if peer.rank is not None}))


def _hosts(*counts: RasCount) -> tuple[str, ...]:
    return tuple(sorted({peer.host for one in counts for peer in one.listed}))


def _named(count: RasCount) -> str:
    return name_ranks(_ranks(count)) if _ranks(count) else plural(count.ranks, "rank")


RULES = (Rule(("hang.absent_rank", "hang.teardown", "hang.rendezvous", "cascade.remote_error"), ("hang",), find),)
