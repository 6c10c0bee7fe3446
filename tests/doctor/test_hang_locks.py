"""A collective inside of a locked part: who holds the lock is named, not those who wait for it."""

from __future__ import annotations

import pytest

from doctor.diagnose import diagnose
from doctor.evidence import EvidenceSet
from doctor.evidence.flight_recorder import normalised
from doctor.evidence.rank_table import Frame
from doctor.evidence.stacks import Stack, Thread
from doctor.evidence.tabulate import tabulate
from launcher.common.finding import Finding
from tests.doctor.dumps import Op, recorders

BARRIER = Frame("barrier", "torch/distributed/distributed_c10d.py", 5215)
FLOCK = Frame("flock_lock_inode_wait", "", 0)
PART, MAIN = Frame("build_vocab", "train.py", 9), Frame("<module>", "train.py", 30)


def first(inside: bool) -> Finding:
    """Rank 1 waits in a barrier, in the locked part or after it; the others wait for the lock."""
    ranks = recorders(3)
    for one in ranks:
        one.run(Op())
    ranks[1].wait(Op(name="barrier"))
    tables = [tabulate(normalised(one.dump()), one.rank, f"fr_{one.rank}") for one in ranks]
    locked: tuple[Frame, ...] = (FLOCK, PART, MAIN)
    frames = {0: locked, 1: (BARRIER, PART, MAIN) if inside else (BARRIER, MAIN), 2: locked}
    stacks = [Stack(rank, f"stack_{rank}", "py-spy", (Thread("MainThread", own),)) for rank, own in frames.items()]
    return diagnose(EvidenceSet([*tables, *stacks]), "hang").findings[0]


@pytest.mark.parametrize(
    ("inside", "code", "ranks"), [(True, "hang.cross_group_cycle", (1,)), (False, "hang.absent_rank", (0, 2))]
)
def test_a_collective_in_a_locked_part(inside: bool, code: str, ranks: tuple[int, ...]) -> None:
    finding = first(inside)
    assert (finding.code, finding.ranks, finding.detail["sub_cause"]) == (code, ranks, "file_lock")
