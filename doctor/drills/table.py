"""What each fault of the workloads must lead to. Pure data; the faults themselves are workloads/common/faults.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import workloads
from doctor.rules import Question

Stage = Literal["stuck", "slow", "ended"]
ENOUGH_STEPS = 14  # after the fault, before a slow rank is looked for
SMALL_TEXT = str(Path(workloads.__path__[0]) / "pp.py")  # of which an epoch takes some ten steps
# Where the mesh that a workload takes by itself lacks the axis on which the fault shows.
MESHES: Mapping[tuple[str, str], str] = {
    ("mesh_order", "pp"): "pp=2,dp_shard=2",
    ("same_data", "pp"): "pp=2,dp_shard=2",
    ("tp_seed", "nd"): "dp_shard=2,tp=2",
}


@dataclass(frozen=True)
class Expectation:
    """Right answers, the best first. `stage` is when to look: once nothing moves, after slow steps, or at the end."""

    codes: tuple[str, ...]
    stage: Stage = "stuck"
    question: Question = "diagnose"
    ranked: bool = True  # whether the fault's rank must be named
    by_node: bool = False  # the ranks of a whole node
    arguments: tuple[str, ...] = ()


ABSENT = ("hang.absent_rank",)
PARTED = ("hang.desync", "hang.shape_mismatch", "hang.cross_group_cycle", "hang.absent_rank")
SAVING = ("--checkpoint-every", "5")

EXPECTED: Mapping[str, Expectation] = {
    "skip_collective": Expectation(PARTED),
    "extra_collective": Expectation(PARTED),
    "collective_order": Expectation(PARTED),
    "collective_shape": Expectation(("hang.shape_mismatch", "hang.desync")),
    "collective_dtype": Expectation(("hang.desync", "hang.shape_mismatch")),
    "slow_compute": Expectation(("straggler.rank",), "slow", "straggler"),
    "slow_data": Expectation(("straggler.dataloader",), "slow", "straggler"),
    "slow_gc": Expectation(("straggler.gc", "straggler.rank"), "slow", "straggler"),
    "slow_checkpoint": Expectation(("hang.none_slow", "straggler.checkpoint", *ABSENT), arguments=SAVING),
    "slow_node": Expectation(("straggler.node",), "slow", "straggler", by_node=True),
    "stop": Expectation(ABSENT),
    "die": Expectation(ABSENT),
    "swallow": Expectation((*PARTED,)),
    "early_exit": Expectation(PARTED),
    "unused_parameter": Expectation((*ABSENT, "hang.desync")),
    "rank0_evaluation": Expectation(PARTED),
    "dataloader": Expectation(ABSENT),
    "file_lock": Expectation(ABSENT),
    "gil": Expectation(ABSENT),
    "threads": Expectation(("hang.concurrent_threads", "hang.desync", "hang.shape_mismatch")),
    "p2p_order": Expectation(("hang.p2p_unmatched", *ABSENT)),
    "checkpoint_endless": Expectation(("hang.none_slow", *ABSENT), arguments=SAVING),
    "same_data": Expectation(("data.duplicate_shards",), "slow"),
    "set_epoch": Expectation(("data.order_not_shuffled",), "slow", ranked=False, arguments=("--data", SMALL_TEXT)),
    "tp_seed": Expectation(("rng.group_mismatch",), "slow"),
    "diverge": Expectation(
        ("numeric.replica_divergence",), "ended", ranked=False, arguments=("--compare-replicas", "1")
    ),
    "mesh_order": Expectation(("mesh.group_mismatch", "mesh.rank_map_differs"), "slow", ranked=False),
    "nan": Expectation(("numeric.nonfinite",), "ended", ranked=False),
}
