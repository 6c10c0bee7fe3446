"""Stop on one mesh, go on on another: the losses continue as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.workloads.ranks import run_ranks
from tests.workloads.reference import TINY
from workloads.common.checkpoint import Checkpoints
from workloads.common.loop import train
from workloads.common.strategy import Strategy
from workloads.fsdp import FSDP
from workloads.hsdp import HSDP
from workloads.nd import ND
from workloads.zero import ZeRO

EIGHT = ("--batch", "8", "--steps", "8")


def _train(kind: type[Strategy], *argv: str) -> list[float]:
    return train(kind(), [*TINY, *EIGHT, *argv]).losses


def losses(world_size: int, kind: type[Strategy], *argv: str) -> list[float]:
    return run_ranks(_train, world_size, kind, *argv)[0]


@pytest.fixture(scope="module")
def unbroken() -> list[float]:
    return losses(2, FSDP, "--mesh", "dp_shard=2")


def test_the_same_mesh_goes_on_bit_by_bit(tmp_path: Path, unbroken: list[float]) -> None:
    at = ("--mesh", "dp_shard=2", "--checkpoint-dir", str(tmp_path))
    assert losses(2, FSDP, *at, "--steps", "4") == unbroken[:4]
    assert losses(2, FSDP, *at) == unbroken[4:]


def test_other_meshes_go_on_where_the_last_one_stopped(tmp_path: Path, unbroken: list[float]) -> None:
    at = ("--checkpoint-dir", str(tmp_path))
    found = [
        *losses(4, ND, *at, "--steps", "2", "--mesh", "dp_shard=2,tp=2", "--accumulate", "1"),
        *losses(2, ZeRO, *at, "--steps", "4", "--mesh", "dp_shard=2", "--stage", "3"),
        *losses(1, FSDP, *at, "--steps", "5", "--mesh", "dp_shard=1"),
        *losses(4, HSDP, *at, "--steps", "8", "--mesh", "dp_replicate=2,dp_shard=2"),
    ]
    assert found == pytest.approx(unbroken, abs=2e-5)


def _terminated(directory: str) -> list[float]:
    class Interrupted(FSDP):
        def local_batch(self, batch, job):  # type: ignore[no-untyped-def]
            self.steps = getattr(self, "steps", 0) + 1
            if self.steps == 3 and job.world.rank == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return batch

    return train(Interrupted(), [*TINY, *EIGHT, "--mesh", "dp_shard=2", "--checkpoint-dir", directory]).losses


def test_a_signal_to_one_rank_ends_all_in_order_with_a_checkpoint(tmp_path: Path, unbroken: list[float]) -> None:
    stopped = run_ranks(_terminated, 2, str(tmp_path))
    assert stopped == [unbroken[:3], unbroken[:3]]
    assert losses(2, FSDP, "--mesh", "dp_shard=2", "--checkpoint-dir", str(tmp_path)) == unbroken[3:]


def test_background_saves_hold_the_values_of_their_step(tmp_path: Path, unbroken: list[float]) -> None:
    at = ("--mesh", "dp_shard=2", "--checkpoint-dir", str(tmp_path))
    flags = ("--checkpoint-every", "1", "--checkpoint-async", "--checkpoint-keep", "9")
    assert losses(2, FSDP, *at, *flags) == unbroken
    for path in sorted(tmp_path.glob("step-*"))[4:]:
        (path / "complete").unlink()
    assert losses(2, FSDP, *at) == unbroken[4:]


def test_only_complete_checkpoints_count(tmp_path: Path) -> None:
    for step, complete in ((1, True), (2, True), (3, False)):
        path = tmp_path / f"step-{step:08d}"
        path.mkdir()
        if complete:
            (path / "complete").write_text(json.dumps({"world_size": 1}))
    found = Checkpoints(str(tmp_path), keep=2, asynchronous=False).complete()
    assert [path.name for path in found] == ["step-00000001", "step-00000002"]
