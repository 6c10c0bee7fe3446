"""Drills: how they are asked for, and that each does what its kind says."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.workloads.ranks import RankFailed, run_ranks
from tests.workloads.reference import TINY
from workloads.common.data import TrainingData
from workloads.common.faults import BACKENDS, KINDS, WORKLOADS, parse_fault, require_sense
from workloads.common.injections import ACTS, EVERY_RANK, LASTING, Faults
from workloads.common.loop import train
from workloads.common.mesh import World
from workloads.ddp import DDP


def test_a_fault_is_its_kind_with_defaults_and_what_is_said() -> None:
    fault = parse_fault("slow_compute:rank=3,seconds=0.25")
    assert fault is not None
    assert (fault.kind, fault.rank, fault.step, fault.seconds) == (KINDS["slow_compute"], 3, 5, 0.25)


def test_no_fault_unless_asked() -> None:
    assert parse_fault("") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slow_computer", "none of"),
        ("die:seconds=3", "has no 'seconds'"),
        ("die:rank=three", "three"),
        ("die:rank", "invalid literal"),
    ],
)
def test_a_fault_that_is_none_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_fault(text)


def test_every_kind_has_its_act() -> None:
    by_hook = {"dataloader", "mesh_order", "duplicate_device", "expert_imbalance", "set_epoch", "same_data", "tp_seed"}
    assert set(ACTS) | by_hook == set(KINDS)
    assert set(ACTS) & by_hook == set()
    assert set(KINDS) >= LASTING | EVERY_RANK


def test_a_fault_is_refused_where_it_makes_no_sense() -> None:
    for kind in KINDS.values():
        assert {*kind.workloads} <= {*WORKLOADS} and {*kind.backends} <= {*BACKENDS}
    require_sense(parse_fault("unused_parameter"), "ddp", "gloo")
    require_sense(parse_fault("unused_parameter"), "my_own_script", "gloo")
    with pytest.raises(ValueError, match="makes sense in ddp, not in fsdp"):
        require_sense(parse_fault("unused_parameter"), "fsdp", "gloo")
    with pytest.raises(ValueError, match="makes sense on nccl, not on gloo"):
        require_sense(parse_fault("duplicate_device"), "ddp", "gloo")


def test_kinds_are_read_without_torch() -> None:
    code = "import sys, workloads.common.faults; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _losses(fault: str, *argv: str) -> list[float]:
    return train(DDP(), [*TINY, "--steps", "4", "--timeout", "5", "--fault", fault, *argv]).losses


def test_a_slow_rank_changes_no_number() -> None:
    plain, slow = run_ranks(_losses, 2, "")[0], run_ranks(_losses, 2, "slow_compute:step=2,seconds=0.01")[0]
    assert plain == slow


def test_nan_is_caught_before_the_optimizer_and_its_rank_knows() -> None:
    with pytest.raises(RankFailed, match=r"FloatingPointError: step 2: loss nan"):
        run_ranks(_losses, 2, "nan:step=2")


def test_diverging_replicas_are_found_with_rank_and_step() -> None:
    with pytest.raises(RankFailed, match=r"replicas differ after step 3: ranks \[1\]"):
        run_ranks(_losses, 3, "diverge:step=3", "--compare-replicas", "1", "--batch", "9")


def test_a_rank_that_dies_without_a_word_is_noticed_by_the_others_timeout() -> None:
    with pytest.raises(RankFailed):
        run_ranks(_losses, 2, "die:step=2")


def _data(index: int) -> TrainingData:
    return TrainingData(np.arange(81, dtype=np.uint8), batch=4, seq=8, seed=0, index=index, degree=2)


def _faults(text: str, rank: int) -> Faults:
    return Faults(parse_fault(text), World(rank, 2, rank, 2, torch.device("cpu")))


def test_same_data_is_that_of_rank_0_on_one_rank_alone() -> None:
    assert _faults("same_data", rank=1).data(_data(1)).samples(3) == _data(0).samples(3)
    assert _faults("same_data:rank=0", rank=1).data(_data(1)).samples(3) == _data(1).samples(3)


def test_without_set_epoch_every_epoch_has_the_order_of_the_first() -> None:
    steps_per_epoch = 5  # of 10 windows, 4 a step and 2 data ranks: two epochs are five steps
    unshuffled = _faults("set_epoch", rank=0).data(_data(0))
    assert unshuffled.samples(0) == unshuffled.samples(steps_per_epoch)
    assert _data(0).samples(0) != _data(0).samples(steps_per_epoch)


def test_a_tensor_rank_gets_another_seed_from_its_step_on() -> None:
    faults = _faults("tp_seed:step=3", rank=1)
    assert [faults.seed(7, step) for step in range(4)] == [7, 7, 8, 8]
    assert _faults("tp_seed:step=3", rank=0).seed(7, 3) == 7
