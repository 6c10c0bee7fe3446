"""Sends and receives beside collectives: who left the exchange is named, not those who still wait in it."""

from __future__ import annotations

from doctor.diagnose import diagnose
from doctor.evidence import EvidenceSet
from doctor.evidence.flight_recorder import normalised
from doctor.evidence.rank_table import Frame
from doctor.evidence.stacks import Stack, Thread
from doctor.evidence.tabulate import tabulate
from tests.doctor.dumps import Op, recorders

GATHER = Frame("all_gather", "torch/distributed/distributed_c10d.py", 4287)
EXCHANGE = Frame("_wait_batch_p2p", "torch/distributed/pipelining/schedules.py", 683)
MAIN = Frame("<module>", "train.py", 30)


def test_a_rank_that_left_the_pipeline_for_a_collective() -> None:
    """Gloo records no send and recv: the dumps know only of the collective, the stacks of the exchange."""
    ranks = recorders(4, "gloo")
    for one in ranks:
        one.run(Op())
    ranks[1].wait(Op(name="all_gather"))
    tables = [tabulate(normalised(one.dump()), one.rank, f"fr_{one.rank}") for one in ranks]
    inside = {rank: GATHER if rank == 1 else EXCHANGE for rank in range(4)}
    stacks = [Stack(rank, f"s_{rank}", "py-spy", (Thread("MainThread", (inside[rank], MAIN)),)) for rank in inside]
    finding = diagnose(EvidenceSet([*tables, *stacks]), "hang").findings[0]
    assert (finding.code, finding.ranks) == ("hang.absent_rank", (1,))
    assert "ranks 0, 2, 3 still wait for partners" in finding.cause
