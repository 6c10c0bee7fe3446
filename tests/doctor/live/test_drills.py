"""A sample of the drills as real jobs on this machine; `make drill` runs every cell."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from doctor.drills.run import HEALTHY, Drill, Outcome, carry_out

NODES = NODE_SIZE = 2
AT_ONCE = 3  # jobs that hang take no processor: only their starts compete
Cell = tuple[str, str]
HANGING: tuple[Cell, ...] = (
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
)
TIMED: tuple[Cell, ...] = (  # one at a time: others would slow them down
    ("ddp", "slow_compute"),
    ("ddp", "slow_data"),
    ("ddp", "slow_node"),
    ("tp", "slow_compute"),
    ("hsdp", HEALTHY),
)


def carried_out(cell: Cell) -> Outcome:
    workload, fault = cell
    rank = 0 if fault == "rank0_evaluation" else 1
    return carry_out(Drill(fault, workload, rank, node_size=NODE_SIZE), None, None, NODES, NODE_SIZE)


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Cell, Future[Outcome]]]:
    """The drills that hang, some at a time; each in a process that sees the jobs' own directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLAUNCH_HOME", str(tmp_path_factory.mktemp("drills")))
        with ProcessPoolExecutor(AT_ONCE, get_context("spawn")) as pool:
            yield {cell: pool.submit(carried_out, cell) for cell in HANGING}


@pytest.mark.timeout(480)
@pytest.mark.parametrize("cell", HANGING, ids="-".join)
def test_a_job_that_hangs_is_judged_right(cell: Cell, hanging: dict[Cell, Future[Outcome]]) -> None:
    outcome = hanging[cell].result()
    assert outcome.right, outcome


@pytest.mark.timeout(240)
@pytest.mark.parametrize("cell", TIMED, ids="-".join)
def test_a_job_that_is_slow_or_well_is_judged_right(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLAUNCH_HOME", str(tmp_path))
    outcome = carried_out(cell)
    assert outcome.right, outcome
