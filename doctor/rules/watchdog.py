"""What the waits that torch's watchdog ended say: who is behind, who called another operation, who is silent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent, LogFile
from doctor.evidence.rank_table import RankTable, may_be_uneven, up_to_largest
from doctor.evidence.ras import RasReport
from doctor.evidence.watchdog import NO_NUMBER, GroupProgress, WorkTimeout
from doctor.rules import Rule
from doctor.rules.activities import ACTIVITIES, DOING, activity_of, came_back
from doctor.rules.fleet import WORLD
from doctor.rules.majority import compared, minority
from doctor.rules.watchdog_reports import FIX_BRANCH, report
from doctor.rules.watchdog_waits import Waits, waits_of
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding, unknown

ROOTED = ("BROADCAST", "_BROADCAST_OOP", "UNKNOWN")  # of which the lines tell sizes that differ without harm
FROZEN = 1.5  # a wait this much longer than its timeout: the process itself did not run
NEXT_TIME = "flight recorder dumps of all ranks (TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1)"


def find(evidence: EvidenceSet) -> Iterator[Finding]:
    desync = list(report(evidence))
    if desync:
        yield from desync
        return
    if evidence.has(RankTable):
        return  # dumps tell the same and more
    found = [finding for waits in evidence.once(waits_of) if waits.timeouts for finding in _judge(waits, evidence)]
    yield from found
    if not evidence.has(WorkTimeout):
        yield from filter(None, map(_told_behind, evidence.once(waits_of)))


def _told_behind(waits: Waits) -> Finding | None:
    """No line of a timeout, but each rank told how far it had come: few are idle at the number before the others'."""
    idle = {rank: one for rank, one in waits.progress.items() if one.enqueued == one.completed}
    busy = [one for rank, one in waits.progress.items() if rank not in idle]
    last = {one.completed for one in busy}
    if not idle or len(idle) >= len(busy) or len(last) != 1 or {one.enqueued for one in idle.values()} != last:
        return None
    number = last.pop() + 1
    others = [one.rank for one in busy if one.rank is not None]
    return Finding(
        "hang.absent_rank",
        "error",
        f"{name_ranks(idle)} did not come to number {number} of {waits.title}, in which {name_ranks(others)} waited.",
        "look at the stack of the absent rank (py-spy dump) and its last log lines",
        0.75,
        tuple(sorted(idle)),
        detail={"group": waits.group, "seq": number, "waiting": sorted(others)},
        evidence=tuple(Evidence("watchdog", one.where, one.text) for one in [*idle.values(), *busy][:4]),
    )


def _judge(waits: Waits, evidence: EvidenceSet) -> Iterator[Finding]:
    numbers = waits.numbers()
    behind = {rank: one for rank, one in waits.progress.items() if one.enqueued < min(numbers)}
    kinds = {one.op for one in waits.timeouts.values()}
    if frozen := _frozen(waits):
        yield frozen
    elif len(waits.timeouts) > 1 and len(kinds) == 1 and kinds <= {"SEND", "RECV"}:
        yield _unmatched(waits, kinds.pop())
    elif behind:
        yield _absent(waits, behind)
    elif len(numbers) > 1:
        yield _apart(waits, numbers)
    else:
        yield from _same_number(waits, evidence)


def _frozen(waits: Waits) -> Finding | None:
    ratios = [one.ran_ms / one.timeout_ms for one in waits.timeouts.values() if one.ran_ms and one.timeout_ms]
    if not ratios or min(ratios) < FROZEN:
        return None
    longest = max(one.ran_ms or 0 for one in waits.timeouts.values())
    return Finding(
        "benign.host_frozen",
        "info",
        f"The waits of {name_ranks(waits.timeouts)} ran {longest / 1000:,.0f} s, far over their timeout: the hosts or"
        " processes themselves stood still (suspended, frozen, debugger), so the timeout says nothing about the job.",
        "look for suspension, live migration or a stopped process at that time",
        0.75,
        tuple(waits.timeouts),
        evidence=waits.quotes,
    )


def _unmatched(waits: Waits, op: str) -> Finding:
    """Point to point, all on the same side."""
    first = waits.timeouts[min(waits.timeouts)]
    return Finding(
        "hang.p2p_unmatched",
        "error",
        f"{name_ranks(waits.timeouts)} all wait in {op.lower()} of {waits.title}: nobody stands on the other side.",
        "let one side receive first (order by rank parity), or batch sends and receives with batch_isend_irecv",
        0.8,
        tuple(sorted(waits.timeouts)),
        detail=_detail(waits, first),
        evidence=waits.quotes,
    )


def _absent(waits: Waits, behind: Mapping[int, GroupProgress]) -> Finding:
    first = min(waits.timeouts.values(), key=lambda one: one.seq)
    state = "; ".join(f"rank {rank} had enqueued only up to {one.enqueued}" for rank, one in sorted(behind.items())[:4])
    return Finding(
        "hang.absent_rank",
        "error",
        f"{name_ranks(behind)} did not come to {first.call} of {waits.title}, where "
        f"{name_ranks(waits.timeouts)} gave up waiting: {state}.",
        "look at the stack of the absent rank (py-spy dump) and its last log lines",
        0.85,
        tuple(sorted(behind)),
        detail=_detail(waits, first),
        evidence=waits.quotes,
    )


def _apart(waits: Waits, numbers: Mapping[int, Sequence[int]]) -> Finding:
    """Ranks gave up at different numbers of one group: some made calls that others did not."""
    odd = sorted(minority(numbers))
    if len(numbers) == 2 and len({len(ranks) for ranks in numbers.values()}) == 1:
        odd = sorted(waits.timeouts)
    where = "; ".join(
        f"{name_ranks(ranks)} in {waits.timeouts[ranks[0]].call}" for _, ranks in list(numbers.items())[:6]
    )
    sure = 0.85 if waits.group else 0.75
    return Finding(
        "hang.desync",
        "error",
        f"Ranks wait at different numbers of {waits.title}: {where}. Some made calls that others did not.",
        FIX_BRANCH,
        sure,
        tuple(odd),
        detail=_detail(waits, min(waits.timeouts.values(), key=lambda one: one.seq)),
        evidence=waits.quotes,
    )


def _same_number(waits: Waits, evidence: EvidenceSet) -> Iterator[Finding]:
    first = waits.timeouts[min(waits.timeouts)]
    ops = {rank: one.op for rank, one in waits.timeouts.items()}
    sizes = {rank: (one.numel_in, one.numel_out) for rank, one in waits.timeouts.items()}
    if len(set(ops.values())) > 1:
        yield _differ("hang.desync", waits, "call different operations", ops)
    elif len(set(sizes.values())) > 1 and not (may_be_uneven(first.op) or first.op in ROOTED):
        words = {rank: f"{first.op} of {size[0]} elements" for rank, size in sizes.items()}
        yield _differ("hang.shape_mismatch", waits, "call it with different sizes", words)
    else:
        yield _all_alike(waits, first, evidence)


def _differ(code: str, waits: Waits, what: str, words: Mapping[int, str]) -> Finding:
    odd, listed = compared(words)
    first = waits.timeouts[min(waits.timeouts)]
    return Finding(
        code,
        "error",
        f"Ranks of {waits.title} {what}{'' if first.seq == NO_NUMBER else f' at number {first.seq}'}: {listed}.",
        FIX_BRANCH,
        0.85,
        odd,
        detail=_detail(waits, first),
        evidence=waits.quotes,
    )


def _all_alike(waits: Waits, first: WorkTimeout, evidence: EvidenceSet) -> Finding:
    """Everybody who spoke waited in the same call. Who is missing, and what was the missing rank doing?"""
    seen = name_ranks([rank for rank in waits.timeouts if rank >= 0]) if -1 not in waits.timeouts else "a rank"
    call = f"{first.call} of {waits.title}"
    doing = activity_of(first, evidence)
    if doing and (done := came_back(doing, evidence)):
        return _too_short(waits, first, doing, done)
    if doing:
        return _busy(waits, first, doing, f"{seen} waited the whole timeout in {call}")
    healthy = any(one.agrees for one in evidence.of(RasReport))
    ranks = set(waits.timeouts)
    expected = set(up_to_largest(ranks)) | _heard(waits, evidence)
    whole = len(ranks) > 1 and ranks == expected and all(one.seq == first.seq for one in waits.timeouts.values())
    silent = sorted(expected - ranks) if len(ranks) > 1 else []
    if healthy or (whole and len(ranks) >= 4):
        why = "RAS says that all ranks have launched it" if healthy else "every rank that gave up was in it"
        return Finding(
            "hang.stalled_collective",
            "error",
            f"{seen} gave up on {call} and {why}: it was entered and does not finish. Look at network, device and "
            "transport, not at the program.",
            "kernel logs (Xid), NCCL_DEBUG=INFO, port counters; nccl-tests on these nodes",
            0.75,
            tuple(sorted(ranks)),
            detail=_detail(waits, first),
            evidence=waits.quotes,
        )
    if len(ranks) >= 3 and 0 < len(silent) <= max(1, len(ranks) // 4):
        return _silent(waits, first, silent, seen, call)
    suspects = (
        f" Silent so far: {name_ranks(silent)}; they are the first suspects." if silent and len(silent) <= 64 else ""
    )
    return unknown(
        f"{seen} gave up waiting in {call}; the lines do not tell which rank did not come or whether all"
        f" did.{suspects}",
        [f"the watchdog lines of the other ranks, or {NEXT_TIME}"],
        waits.quotes,
    )


def _heard(waits: Waits, evidence: EvidenceSet) -> set[int]:
    """All ranks whose lines are in the logs, for a group that may be the whole job's."""
    if waits.group not in ("", "0", WORLD):
        return set()
    return {rank for log in evidence.of(LogFile) for rank in log.ranks}


def _silent(waits: Waits, first: WorkTimeout, silent: Sequence[int], seen: str, call: str) -> Finding:
    """Nearly all ranks spoke: those that did not are where the others wait."""
    return Finding(
        "hang.absent_rank",
        "error",
        f"{seen} gave up waiting in {call}; {name_ranks(silent)} said nothing and is the first suspect.",
        "look at the stack of the silent rank (py-spy dump), its last log lines, and whether it lives",
        0.55,
        tuple(silent),
        detail=_detail(waits, first),
        evidence=waits.quotes,
        missing=(f"the log of {name_ranks(silent)}, or {NEXT_TIME}",),
    )


def _too_short(waits: Waits, first: WorkTimeout, doing: LogEvent, done: LogEvent) -> Finding:
    """The busy rank finished its work after the others had given up."""
    took = f" after {done.time - doing.time:,.0f} s" if done.time and doing.time else ""
    limit = f" of {first.timeout_ms / 1000:,.0f} s" if first.timeout_ms else ""
    return Finding(
        "benign.timeout_too_short",
        "info",
        f"{name_ranks([rank for rank in waits.timeouts if rank >= 0])} gave up in {first.call} while another rank was "
        f"{DOING[ACTIVITIES[doing.kind]]}, which it finished{took}: nobody hung, the timeout{limit} was too short.",
        "give the group a longer timeout (init_process_group(timeout=…), or new_group for that barrier), or do the work"
        " asynchronously or on all ranks",
        0.75,
        tuple(rank for rank in waits.timeouts if rank >= 0),
        detail=_detail(waits, first),
        evidence=(Evidence("log", doing.where, doing.text), Evidence("log", done.where, done.text), *waits.quotes),
    )


def _busy(waits: Waits, first: WorkTimeout, doing: LogEvent, waited: str) -> Finding:
    sub_cause = ACTIVITIES[doing.kind]
    rank = doing.origin.rank
    whose = f"rank {rank}" if rank is not None else "one rank (most often rank 0)"
    return Finding(
        "hang.absent_rank",
        "error",
        f"{waited}. When the wait began {whose} was {DOING[sub_cause]} "
        f"({doing['what'] or doing.text}) and did not come back in time.",
        "look at the storage or work of that rank; save asynchronously or raise the timeout of the group if it is only"
        " slow",
        0.7,
        (rank,) if rank is not None else (),
        detail=dict(_detail(waits, first)) | {"sub_cause": sub_cause},
        evidence=(Evidence("log", doing.where, doing.text), *waits.quotes),
    )


def _detail(waits: Waits, first: WorkTimeout) -> dict[str, object]:
    known: dict[str, object] = {
        "group": waits.group,
        "seq": first.seq,
        "op": first.op,
        "waiting": sorted(waits.timeouts),
    }
    return known | ({"time": waits.time} if waits.time is not None else {})


RULES = (
    Rule(
        (
            "hang.absent_rank",
            "hang.desync",
            "hang.shape_mismatch",
            "hang.stalled_collective",
            "hang.p2p_unmatched",
            "benign.host_frozen",
            "benign.timeout_too_short",
        ),
        ("hang",),
        find,
    ),
)
