"""Sends and receives beside collectives: who left the exchange is named, not those who still wait in it."""

from __future__ import annotations

from collections.abc import Collection

from doctor.diagnose import diagnose
from doctor.evidence import EvidenceSet
from doctor.evidence.flight_recorder import normalised
from doctor.evidence.rank_table import Frame
from doctor.evidence.stacks import Stack, Thread
from doctor.evidence.tabulate import tabulate
from launcher.common.finding import Finding
from tests.doctor.dumps import Op, recorders

GATHER = Frame("all_gather", "torch/distributed/distributed_c10d.py", 4287)
EXCHANGE = Frame("_wait_batch_p2p", "torch/distributed/pipelining/schedules.py", 683)
MAIN = Frame("<module>", "train.py", 30)


SEND = Frame("send", "torch/distributed/distributed_c10d.py", 2600)


def hang(in_collective: Collection[int], exchange: Frame, exchanged: Collection[int] = ()) -> Finding:
    """Four ranks, of which some wait in a collective and the others in an exchange.

    Gloo records no send and recv: the dumps know only of the collective, the stacks of the exchange. What the group
    says of itself counts them in, here `exchanged` by rank.
    """
    ranks = recorders(4, "gloo")
    for one, more in zip(ranks, exchanged or [0] * 4, strict=True):
        one.run(Op())
        if one.rank in in_collective:
            one.wait(Op(name="all_gather"))
        for status in one.status.values():
            status["last_enqueued_collective"] += more
            status["last_completed_collective"] += more
    tables = [tabulate(normalised(one.dump()), one.rank, f"fr_{one.rank}") for one in ranks]
    inside = {rank: GATHER if rank in in_collective else exchange for rank in range(4)}
    stacks = [Stack(rank, f"s_{rank}", "py-spy", (Thread("MainThread", (inside[rank], MAIN)),)) for rank in inside]
    return diagnose(EvidenceSet([*tables, *stacks]), "hang").findings[0]


def test_a_rank_that_left_the_pipeline_for_a_collective() -> None:
    finding = hang({1}, EXCHANGE)
    assert (finding.code, finding.ranks) == ("hang.absent_rank", (1,))
    assert "ranks 0, 2, 3 still wait for partners" in finding.cause


def test_a_rank_that_entered_an_exchange_alone() -> None:
    finding = hang({0, 2, 3}, EXCHANGE)
    assert (finding.code, finding.ranks) == ("hang.absent_rank", (1,))


def test_two_ranks_that_both_send_hold_up_a_collective() -> None:
    finding = hang({0, 3}, SEND)
    assert (finding.code, finding.ranks) == ("hang.p2p_unmatched", (1, 2))


def test_sends_that_gloo_counts_among_its_collectives_shift_no_number() -> None:
    finding = hang({0, 2, 3}, EXCHANGE, exchanged=(86, 140, 172, 86))
    assert (finding.code, finding.ranks) == ("hang.absent_rank", (1,))
