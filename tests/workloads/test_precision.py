"""Other types than float32: bfloat16 within its bounds where somebody casts; float64, where rounding is no excuse."""

from __future__ import annotations

import pytest
import torch

from tests.workloads.ranks import RankFailed
from tests.workloads.reference import Run, assert_same_training, distributed, single_process
from workloads.common.config import preset
from workloads.common.options import Options
from workloads.common.strategy import Strategy
from workloads.cp import CP
from workloads.ddp import DDP
from workloads.ep import EP
from workloads.fsdp import FSDP
from workloads.hsdp import HSDP
from workloads.nd import ND
from workloads.pp import PP
from workloads.tp import TP
from workloads.zero import ZeRO

BFLOAT16 = 0.02  # of ten losses between 5.6 and 3.3: eight bits of mantissa keep 1/256 of each product


@pytest.fixture(scope="module")
def reference() -> Run:
    return single_process(preset("debug", layers=2))


@pytest.fixture(scope="module")
def double() -> Run:
    return single_process(preset("debug", layers=2), dtype=torch.float64)


@pytest.mark.parametrize(
    ("kind", "mesh", "flags"),
    [
        (DDP, "dp_replicate=2", ()),
        (ZeRO, "dp_shard=2", ("--stage", "1")),
        (FSDP, "dp_shard=2", ("--accumulate", "2")),
        (TP, "dp_shard=1,tp=2", ()),
        (PP, "pp=2,dp_shard=1", ("--accumulate", "2")),
        (CP, "cp=2", ()),
        (ND, "dp_shard=2,tp=2", ("--accumulate", "1")),
    ],
)
def test_bfloat16_learns_the_same(reference: Run, kind: type[Strategy], mesh: str, flags: tuple[str, ...]) -> None:
    losses = distributed(kind, mesh, "--dtype", "bfloat16", *flags).losses
    assert losses == pytest.approx(reference.losses, abs=BFLOAT16)
    assert losses != pytest.approx(reference.losses, abs=1e-5)  # as float32 would be


def test_experts_in_bfloat16_learn_the_same() -> None:
    mixture = ("dp_shard=2,ep=2", "--experts", "4")
    half, full = (distributed(EP, *mixture, "--dtype", dtype).losses for dtype in ("bfloat16", "float32"))
    assert half == pytest.approx(full, abs=BFLOAT16)
    assert half != pytest.approx(full, abs=1e-5)


def test_bfloat16_without_anyone_to_cast_is_refused() -> None:
    with pytest.raises(RankFailed, match="FSDP has no axis in the mesh tp: add dp_shard=1"):
        distributed(TP, "tp=2", "--dtype", "bfloat16")


@pytest.mark.parametrize(
    ("kind", "mesh", "flags"),
    [
        (DDP, "dp_replicate=4", ()),
        (ZeRO, "dp_shard=4", ("--stage", "1", "--no-count")),
        (HSDP, "dp_replicate=2,dp_shard=2", ("--accumulate", "2")),
        (PP, "pp=2,dp_shard=2", ("--accumulate", "4")),
        (ND, "cp=2,tp=2", ("--accumulate", "1")),
    ],
)
def test_float64_leaves_nothing_to_rounding(
    double: Run, kind: type[Strategy], mesh: str, flags: tuple[str, ...]
) -> None:
    run = distributed(kind, mesh, "--dtype", "float64", *flags)
    assert_same_training(run, double, loss=1e-13, gradient=1e-12, parameter=1e-9)


def test_the_table_does_not_count_float64() -> None:
    with pytest.raises(ValueError, match="the table has no float64"):
        Options(count=True, dtype="float64")
