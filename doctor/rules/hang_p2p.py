"""Sends and receives without their partners, from dumps: who waits for whom, pair by pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from doctor.evidence import EvidenceSet
from doctor.evidence.rank_table import P2P, STARTED, Call, RankTable
from doctor.rules import Rule
from doctor.rules.fleet import Fleet, fleet_of
from doctor.rules.suspects import SUB_CAUSES, Witnesses, witnesses_of
from doctor.rules.waits import WaitGraph, WaitPoint, graph_of, strongly_connected
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding

SHOWN = 8
ORDER = "Let one side of each pair receive first, or post both with batch_isend_irecv."


@dataclass(frozen=True)
class Pending:
    """A send or recv of `rank` that has not ended, and the rank at its other end."""

    rank: int
    peer: int
    call: Call
    where: str

    @property
    def sends(self) -> bool:
        return self.call.signature.op == "send"

    def __str__(self) -> str:
        return f"rank {self.rank} {'sends to' if self.sends else 'receives from'} rank {self.peer}"


def find_unmatched(evidence: EvidenceSet) -> Iterator[Finding]:
    """Cycles of unmatched calls, and ranks that never came to theirs."""
    fleet = evidence.once(fleet_of)
    pending = {rank: found for rank, table in fleet.tables.items() if (found := _pending(rank, table, fleet))}
    waits = {rank: [one for one in found if not _matched(one, pending)] for rank, found in pending.items()}
    waits = {rank: found for rank, found in waits.items() if found}
    in_collectives = evidence.once(graph_of).stuck_in
    edges = {rank: sorted({one.peer for one in found}) for rank, found in waits.items()}
    for part in strongly_connected(edges):
        if len(part) > 1:
            yield _cycle(part, waits)
    missed = sorted({peer for peers in edges.values() for peer in peers} - pending.keys() - in_collectives.keys())
    for rank in missed:
        yield _absent(rank, [one for found in waits.values() for one in found if one.peer == rank], evidence, fleet)


def apart_in_exchange(left: Sequence[int], point: WaitPoint, graph: WaitGraph, witnesses: Witnesses) -> Finding:
    """Ranks `left` in send or recv, the others in a collective: who all send, or all receive, wait for each other;
    else the fewer are to blame, who left the exchange early or entered one that the others do not make."""
    calls = {place.op for rank in left if (place := witnesses.place(rank))}
    if len(left) > 1 and len(calls) == 1 and calls <= {"send", "recv"}:
        return _all_alike(left, calls.pop(), point, witnesses)
    ahead = sorted(graph.waiters(point))
    odd, told, sub_cause = list(left), "did not come to it", "python"
    if len(ahead) <= len(left):
        odd, told, sub_cause = ahead, "left the exchange too early", "uneven_data"
    waits = "waits" if len(ahead) == 1 else "wait"
    return Finding(
        "hang.absent_rank",
        "error",
        f"{name_ranks(ahead)} {waits} in {point} while {name_ranks(left)} still wait for partners in send or recv: "
        f"{name_ranks(odd)} {told}.",
        SUB_CAUSES[sub_cause][1],
        0.8,
        ranks=tuple(odd),
        detail={"sub_cause": sub_cause, **point.facts},
        evidence=[piece for rank in (*ahead, *left)[:SHOWN] for piece in witnesses.suspect(rank).evidence],
    )


def _all_alike(ranks: Sequence[int], call: str, point: WaitPoint, witnesses: Witnesses) -> Finding:
    return Finding(
        "hang.p2p_unmatched",
        "error",
        f"{name_ranks(ranks)} all {call.replace('recv', 'receive')}, and wait for each other; the other ranks wait for "
        f"them in {point}.",
        ORDER,
        0.8,
        ranks=tuple(ranks),
        detail=point.facts,
        evidence=[piece for rank in ranks[:SHOWN] for piece in witnesses.suspect(rank).evidence],
    )


def _pending(rank: int, table: RankTable, fleet: Fleet) -> list[Pending]:
    """The newest calls that have not ended. NCCL never marks batched ones: they count only if they have started."""
    members = {index: group.members for index, group in enumerate(table.groups)}
    last_done = max((call.created_ns for call in table.newest if call.done), default=0)
    found = []
    for call in table.newest:
        trusted = "nccl" not in table.library or call.flags & STARTED
        if call.flags & P2P and not call.done and trusted and call.peer and call.created_ns > last_done:
            other = call.peer[1] if call.signature.op == "send" else call.peer[0]
            ranks = members[call.group] or tuple(sorted(fleet.world))
            if other < len(ranks):
                found.append(Pending(rank, ranks[other], call, table.where))
    return found[:1]  # calls on one stream end in order: the oldest holds the others


def _matched(one: Pending, pending: Mapping[int, Sequence[Pending]]) -> bool:
    return any(other.peer == one.rank and other.sends != one.sends for other in pending.get(one.peer, ()))


def _cycle(ranks: Sequence[int], waits: Mapping[int, Sequence[Pending]]) -> Finding:
    calls = [one for rank in ranks for one in waits[rank]]
    both = "all send first" if all(one.sends for one in calls) else "no call meets its partner"
    return Finding(
        "hang.p2p_unmatched",
        "error",
        f"{name_ranks(ranks)} wait for each other in send and recv, {both}: {'; '.join(map(str, calls[:SHOWN]))}.",
        ORDER,
        0.85,
        ranks=tuple(ranks),
        evidence=_seen(calls),
    )


def _absent(rank: int, calls: Sequence[Pending], evidence: EvidenceSet, fleet: Fleet) -> Finding:
    witnesses: Witnesses = evidence.once(witnesses_of)
    suspect = witnesses.suspect(rank)
    sub_cause = "python" if suspect.sub_cause == "silent" and rank in fleet.tables else suspect.sub_cause
    return Finding(
        "hang.absent_rank",
        "error",
        f"Rank {rank} has not come to its partner's call: {'; '.join(map(str, calls[:SHOWN]))}. "
        f"Rank {rank} {SUB_CAUSES[sub_cause][0]}.",
        SUB_CAUSES[sub_cause][1],
        0.8,
        ranks=(rank,),
        detail={"sub_cause": sub_cause},
        evidence=[*suspect.evidence, *_seen(calls)],
    )


def _seen(calls: Sequence[Pending]) -> list[Evidence]:
    return [Evidence("flight_recorder", f"{one.where} p2p #{one.call.seq}", str(one)) for one in calls[:SHOWN]]


RULES = (Rule(("hang.p2p_unmatched", "hang.absent_rank"), ("hang",), find_unmatched),)
