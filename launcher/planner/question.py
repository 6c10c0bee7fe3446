"""What is asked: this model, trained so, on this cluster. And a mesh's place in the table of states."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.planner.cluster import Machine
from launcher.planner.model import Model
from launcher.spec import MeshSpec
from workloads.common.costs import Case
from workloads.common.states import PROFILES, rows_for


@dataclass(frozen=True)
class Question:
    """`batch` is the global number of sequences of `seq` tokens; `profile` a key of PROFILES."""

    model: Model
    machine: Machine
    batch: int
    seq: int
    profile: str = "fsdp2"

    @property
    def tokens(self) -> int:
        return self.batch * self.seq


def case_of(question: Question, mesh: MeshSpec, micro_batches: int, checkpointing: bool) -> Case:
    """The mesh under the rows that workloads/nd.py uses on it."""
    rows = rows_for(mesh.degrees)
    if question.model.sizes.experts and "ep" not in rows:
        rows = (*rows, "ep")  # undivided experts are still sharded on a mesh of their own
    return Case(
        question.model.sizes,
        mesh.degrees,
        rows,
        question.batch,
        question.seq,
        PROFILES[question.profile],
        micro_batches=micro_batches,
        checkpointing=checkpointing,
        buckets=ddp_buckets(question, mesh),
    )


def ddp_buckets(question: Question, mesh: MeshSpec) -> int:
    """DDP reduces gradients of 25 MiB at a time, its default."""
    share = question.model.sizes.total * 4 / mesh.degrees.get("tp", 1) / mesh.degrees.get("pp", 1)
    return max(1, -(-int(share) // (25 << 20)))
