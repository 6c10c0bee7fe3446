"""DDP, ZeRO, FSDP and HSDP against one process."""

from __future__ import annotations

import pytest

from tests.workloads.reference import Run, assert_same_training, distributed, single_process
from workloads.common.config import preset
from workloads.ddp import DDP
from workloads.fsdp import FSDP
from workloads.hsdp import HSDP


@pytest.fixture(scope="module")
def reference() -> Run:
    return single_process(preset("debug", layers=2))


@pytest.mark.parametrize("degree", [2, 4])
def test_ddp(reference: Run, degree: int) -> None:
    assert_same_training(distributed(DDP, f"dp_replicate={degree}"), reference)


@pytest.mark.parametrize(
    "mesh", ["dp_replicate=1,dp_shard=2", "dp_replicate=2,dp_shard=2", "dp_replicate=2,dp_shard=4"]
)
def test_hsdp(reference: Run, mesh: str) -> None:
    assert_same_training(distributed(HSDP, mesh), reference)


@pytest.mark.parametrize(
    "flags",
    [
        ("--wrap", "model"),
        ("--wrap", "linear", "--reshard", "false"),
        ("--reshard", "2", "--prefetch", "1"),
        ("--accumulate", "2", "--keep-gathered"),
        ("--offload", "--recompute"),
    ],
    ids=" ".join,
)
def test_fsdp(reference: Run, flags: tuple[str, ...]) -> None:
    assert_same_training(distributed(FSDP, "dp_shard=4", *flags), reference)
