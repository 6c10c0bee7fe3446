"""A sample of the drills as real jobs on this machine; `make drill` runs every cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.drills.run import HEALTHY, Drill, carry_out

NODES = NODE_SIZE = 2
CELLS = (
    ("ddp", "skip_collective"),
    ("ddp", "collective_order"),
    ("ddp", "die"),
    ("ddp", "early_exit"),
    ("ddp", "checkpoint_endless"),
    ("ddp", "nan"),
    ("tp", "stop"),
    ("hsdp", "dataloader"),
    ("hsdp", "rank0_evaluation"),
    ("hsdp", "file_lock"),
    ("ddp", "slow_compute"),
    ("ddp", "slow_data"),
    ("ddp", "slow_node"),
    ("tp", "slow_compute"),
    ("hsdp", HEALTHY),
)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_a_drill_is_judged_right(cell: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLAUNCH_HOME", str(tmp_path))
    workload, fault = cell
    rank = 0 if fault == "rank0_evaluation" else 1
    outcome = carry_out(Drill(fault, workload, rank, node_size=NODE_SIZE), None, None, NODES, NODE_SIZE)
    assert outcome.right, outcome
