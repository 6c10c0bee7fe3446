"""DDP, ZeRO, FSDP and HSDP against one process."""

from __future__ import annotations

import pytest

from tests.workloads.reference import Run, assert_same_training, distributed, single_process
from workloads.common.config import preset
from workloads.ddp import DDP
from workloads.fsdp import FSDP
from workloads.hsdp import HSDP
from workloads.zero import ZeRO


@pytest.fixture(scope="module")
def reference() -> Run:
    return single_process(preset("debug", layers=2))


@pytest.mark.parametrize("degree", [2, 4])
def test_ddp(reference: Run, degree: int) -> None:
    assert_same_training(distributed(DDP, f"dp_replicate={degree}"), reference)


@pytest.mark.parametrize(
    "flags",
    [
        ("--bucket-mb", "0.1", "--no-bucket-view"),
        ("--static-graph", "--recompute"),
        ("--find-unused", "--accumulate", "2"),
        ("--sweep-buckets", "0.1,25"),
    ],
    ids=" ".join,
)
def test_ddp_in_all_its_forms(reference: Run, flags: tuple[str, ...]) -> None:
    assert_same_training(distributed(DDP, "dp_replicate=2", *flags), reference)


@pytest.mark.parametrize(
    ("flags", "bound"),
    [
        (("--hook", "bf16"), 0.01),
        (("--hook", "powersgd", "--hook-rank", "32"), 0.3),
        (("--hook", "topk", "--hook-share", "0.5"), 0.2),
        (("--local-sgd", "2", "--local-sgd-after", "2"), 0.1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_compressed_gradients_learn_nearly_the_same(reference: Run, flags: tuple[str, ...], bound: float) -> None:
    losses = distributed(DDP, "dp_replicate=2", *flags).losses
    assert max(abs(ours - theirs) for ours, theirs in zip(losses, reference.losses, strict=True)) < bound
    assert losses != reference.losses


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("degree", [2, 4])
def test_zero(reference: Run, stage: int, degree: int) -> None:
    assert_same_training(distributed(ZeRO, f"dp_shard={degree}", "--stage", str(stage)), reference)


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
