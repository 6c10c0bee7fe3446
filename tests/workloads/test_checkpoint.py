"""Stop on one mesh, go on on another: the losses continue as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.distributed.checkpoint import FileSystemWriter, load

from tests.workloads.ranks import on_standing_ranks, run_ranks
from tests.workloads.reference import TINY
from workloads.common.checkpoint import Checkpoints
from workloads.common.loop import train
from workloads.common.mesh import World, process_group
from workloads.common.strategy import Strategy
from workloads.fsdp import FSDP
from workloads.hsdp import HSDP
from workloads.nd import ND
from workloads.zero import ZeRO

EIGHT = ("--batch", "8", "--steps", "8")
LR = "3e-4"  # the usual rate amplifies rounding more with every step


def _train(kind: type[Strategy], *argv: str) -> list[float]:
    return train(kind(), [*TINY, *EIGHT, *argv]).losses


def losses(world_size: int, kind: type[Strategy], *argv: str) -> list[float]:
    return on_standing_ranks(_train, world_size, kind, *argv)[0]


@pytest.fixture(scope="module")
def unbroken() -> list[float]:
    return losses(2, FSDP, "--mesh", "dp_shard=2")


def test_the_same_mesh_goes_on_bit_by_bit(tmp_path: Path, unbroken: list[float]) -> None:
    at = ("--mesh", "dp_shard=2", "--checkpoint-dir", str(tmp_path))
    assert losses(2, FSDP, *at, "--steps", "4") == unbroken[:4]
    assert losses(2, FSDP, *at) == unbroken[4:]


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-6), ("float64", 1e-13)])
def test_other_meshes_go_on_where_the_last_one_stopped(tmp_path: Path, dtype: str, bound: float) -> None:
    """Rounding alone parts the curves: it falls with the type, by as many digits, where a mistake would stay."""
    six = ("--dtype", dtype, "--lr", LR, "--steps", "6")
    eight_ranks = ("--mesh", "dp_shard=2,cp=2,tp=2", "--accumulate", "1", *six)
    at = (*six, "--checkpoint-dir", str(tmp_path))
    found = [
        *losses(8, ND, *eight_ranks, *at, "--steps", "2"),
        *losses(4, HSDP, *at, "--mesh", "dp_replicate=2,dp_shard=2", "--steps", "3"),
        *losses(1, FSDP, *at, "--mesh", "dp_shard=1", "--steps", "4"),
        *losses(8, ND, *at, "--mesh", "dp_shard=4,tp=2", "--accumulate", "1"),
    ]
    assert found == pytest.approx(losses(8, ND, *eight_ranks), abs=bound)


def test_a_shared_out_optimizer_goes_on_on_other_degrees_and_in_shards(tmp_path: Path) -> None:
    at = ("--checkpoint-dir", str(tmp_path), "--lr", LR)
    found = [
        *losses(4, ZeRO, *at, "--mesh", "dp_shard=4", "--stage", "1", "--steps", "2"),
        *losses(2, ZeRO, *at, "--mesh", "dp_shard=2", "--stage", "1", "--steps", "4"),
        *losses(4, ZeRO, *at, "--mesh", "dp_shard=4", "--stage", "1", "--steps", "6"),
        *losses(2, FSDP, *at, "--mesh", "dp_shard=2"),
    ]
    assert found == pytest.approx(losses(2, FSDP, "--mesh", "dp_shard=2", "--lr", LR), abs=1e-6)


def _terminated(directory: str) -> list[float]:
    class Interrupted(FSDP):
        def local_batch(self, batch, job):  # type: ignore[no-untyped-def]
            self.steps = getattr(self, "steps", 0) + 1
            if self.steps == 3 and job.world.rank == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return batch

    return train(Interrupted(), [*TINY, *EIGHT, "--mesh", "dp_shard=2", "--checkpoint-dir", directory]).losses


def test_a_signal_to_one_rank_ends_all_in_order_with_a_checkpoint(tmp_path: Path, unbroken: list[float]) -> None:
    stopped = on_standing_ranks(_terminated, 2, str(tmp_path))
    assert stopped == [unbroken[:3], unbroken[:3]]
    assert losses(2, FSDP, "--mesh", "dp_shard=2", "--checkpoint-dir", str(tmp_path)) == unbroken[3:]


def test_background_saves_hold_the_values_of_their_step(tmp_path: Path, unbroken: list[float]) -> None:
    at = ("--mesh", "dp_shard=2", "--checkpoint-dir", str(tmp_path))
    flags = ("--checkpoint-every", "1", "--checkpoint-async", "--checkpoint-keep", "9")
    assert losses(2, FSDP, *at, *flags) == unbroken
    for path in sorted(tmp_path.glob("step-*"))[4:]:
        (path / "complete").unlink()
    assert losses(2, FSDP, *at) == unbroken[4:]


def _changed_while_written(directory: str) -> torch.Tensor:
    """Save a tensor in the background, change it before the first byte is written, read what was saved."""
    values, changed = torch.arange(1000.0), threading.Event()
    written = FileSystemWriter.write_data

    def late(*args: Any, **more: Any) -> Any:
        assert changed.wait(60)
        return written(*args, **more)

    with process_group(World.from_environment("cpu"), 60), patch.object(FileSystemWriter, "write_data", late):
        checkpoints = Checkpoints(directory, keep=2, asynchronous=True)
        checkpoints.save({"model": {"values": values}, "step": 1})
        values.fill_(-1.0)
        changed.set()
        checkpoints.finish()
        saved = {"model": {"values": torch.zeros(1000)}}
        load(saved, checkpoint_id=checkpoints.complete()[0])
    return saved["model"]["values"]


def test_background_saves_never_store_later_values(tmp_path: Path) -> None:
    (saved,) = run_ranks(_changed_while_written, 1, str(tmp_path))
    assert torch.equal(saved, torch.arange(1000.0))


def test_only_complete_checkpoints_count(tmp_path: Path) -> None:
    for step, complete in ((1, True), (2, True), (3, False)):
        path = tmp_path / f"step-{step:08d}"
        path.mkdir()
        if complete:
            (path / "complete").write_text(json.dumps({"world_size": 1}))
    found = Checkpoints(str(tmp_path), keep=2, asynchronous=False).complete()
    assert [path.name for path in found] == ["step-00000001", "step-00000002"]
