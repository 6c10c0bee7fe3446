"""NCCL's RAS: who is behind (not who is listed), who is missing or dead."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.evidence.ras import RasComm, RasCount, RasPeer, RasReport
from doctor.rules import Rule, healthy
from doctor.text import fold, fold_hosts, name_ranks, plural
from launcher.common.finding import Evidence, Finding

NEAR = 1  # counts this close may be equal a moment later


def find(evidence: EvidenceSet) -> Iterator[Finding]:
    for report in evidence.of(RasReport):
        found = [*_gone(report), *(finding for comm in report.comms for finding in _behind(report, comm))]
        yield from found
        if not found and report.groups and all(group.errors == "OK" for group in report.groups):
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
        yield from _status(report, comm)
        return
    low = min(counts, key=lambda one: one.count or 0)
    top = max(counts, key=lambda one: one.count or 0)
    ahead = [one for one in counts if one is not low]
    ranks = sorted(peer.rank for peer in low.listed if peer.rank is not None)
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
        tuple(ranks),
        tuple(sorted({peer.host for peer in low.listed})),
        detail={"communicator": comm.identity, "behind": low.count, "ahead": top.count, "op": op},
        evidence=(Evidence("ras", report.where, f"{low.ranks} ranks at {low.count}, {top.ranks} at {top.count}"),),
    )


def _unlisted(low: RasCount, ahead: list[RasCount]) -> str:
    known = sorted(peer.rank for one in ahead for peer in one.listed if peer.rank is not None)
    return f"the {plural(low.ranks, 'rank')} other than {fold(known)}" if known else plural(low.ranks, "rank")


def _status(report: RasReport, comm: RasComm) -> Iterator[Finding]:
    """Ranks of one communicator in different states: some finalise while others run."""
    running = [one for one in comm.counts if one.status == "RUNNING"]
    ending = [one for one in comm.counts if one.status in ("FINALIZE", "ABORT", "DESTROY")]
    if not running or not ending:
        return
    late: list[RasPeer] = [peer for one in running for peer in one.listed]
    ranks = sorted(peer.rank for peer in late if peer.rank is not None)
    done = sorted(peer.rank for one in ending for peer in one.listed if peer.rank is not None)
    yield Finding(
        "hang.teardown",
        "warning",
        f"{name_ranks(ranks) if ranks else plural(running[0].ranks, 'rank')} still run while"
        f" {name_ranks(done) if done else 'others'} finalise the"
        f" communicator{' on ' + fold_hosts({peer.host for peer in late}) if late else ''}.",
        "destroy the process group on all ranks at the same point of the program",
        0.6,
        tuple(ranks),
        tuple(sorted({peer.host for peer in late})),
        detail={"communicator": comm.identity},
        evidence=(Evidence("ras", report.where, f"{comm.identity}: {ending[0].status} and RUNNING"),),
    )


RULES = (Rule(("hang.absent_rank", "hang.teardown"), ("hang",), find),)
