"""Every kind of fault that the doctor's sample of drills leaves out, on real ranks, and what is seen of it there."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from tests.workloads.ranks import RankFailed, on_standing_ranks, run_ranks
from tests.workloads.reference import TINY
from workloads.common.faults import KINDS
from workloads.common.loop import train
from workloads.common.model import Transformer
from workloads.common.strategy import Job, Strategy
from workloads.ddp import DDP
from workloads.ep import EP
from workloads.hsdp import HSDP
from workloads.tp import TP

BREAKING = (
    "extra_collective",
    "collective_shape",
    "collective_dtype",
    "swallow",
    "unused_parameter",
    "gil",
    "threads",
    "p2p_order",
)
RUNNING = ("slow_gc", "slow_checkpoint", "set_epoch", "same_data", "tp_seed", "mesh_order", "expert_imbalance")
ELSEWHERE = ("diverge", "duplicate_device")  # in test_faults; refused here, for want of devices


def test_every_kind_is_drilled_here_or_in_the_doctors_sample() -> None:
    sample = (Path(__file__).parents[1] / "doctor" / "live" / "test_drills.py").read_text()
    assert {*BREAKING, *RUNNING, *ELSEWHERE} | {kind for kind in KINDS if f'"{kind}"' in sample} == set(KINDS)


@dataclass(frozen=True)
class Told:
    """What a rank printed, its losses and its progress records."""

    printed: str
    losses: list[float]
    records: list[dict[str, Any]]


def _told(kind: type[Strategy], argv: Sequence[str], directory: str) -> Told:
    progress = Path(directory) / f"progress-{os.environ['RANK']}.jsonl"
    progress.unlink(missing_ok=True)
    os.environ["DLAUNCH_PROGRESS"] = str(progress)
    text = StringIO()
    try:
        with contextlib.redirect_stdout(text):
            losses = train(kind(), [*TINY, "--steps", "3", *argv]).losses
    finally:
        del os.environ["DLAUNCH_PROGRESS"]
    return Told(text.getvalue(), losses, [json.loads(line) for line in progress.read_text().splitlines()])


def _break(fault: str) -> None:
    with contextlib.redirect_stdout(StringIO()):
        train(DDP(), [*TINY, "--steps", "4", "--timeout", "5", "--fault", f"{fault}:step=2"])


def _failure(fault: str) -> str:
    """How two ranks end that have this fault, or that they hang: gloo gives a send the timeout of the first step."""
    with pytest.raises(RankFailed) as failed:
        run_ranks(_break, 2, fault, deadline=30.0)
    return str(failed.value)


def test_what_breaks_a_job_ends_it() -> None:
    with ThreadPoolExecutor(4) as pool:  # most of it is waiting for timeouts
        said = dict(zip(BREAKING, pool.map(_failure, BREAKING), strict=True))
    own_mistakes = {fault: text for fault, text in said.items() if "AssertionError" in text or "injections.py" in text}
    assert set(own_mistakes) <= {"threads", "p2p_order", "collective_shape", "collective_dtype", "extra_collective"}


@pytest.fixture
def directory(tmp_path: Path) -> str:
    np.arange(8 * 32 + 1, dtype=np.uint16).clip(max=255).astype(np.uint8).tofile(tmp_path / "epoch.u8")
    return str(tmp_path)


def test_slow_collections_and_checkpoints_change_no_number(directory: str) -> None:
    plain = on_standing_ranks(_told, 2, DDP, (), directory)[0].losses
    for fault in ("slow_gc:step=2,objects=1000", "slow_checkpoint:step=2,seconds=0.2"):
        saving = ("--checkpoint-dir", f"{directory}/{fault}", "--checkpoint-every", "1")
        assert on_standing_ranks(_told, 2, DDP, ("--fault", fault, *saving), directory)[0].losses == plain


def test_data_and_seeds_that_should_differ_show_in_the_records(directory: str) -> None:
    data = ("--data", f"{directory}/epoch.u8")  # eight windows, eight of which are one step: an epoch
    rank0, rank1 = (told.records for told in on_standing_ranks(_told, 2, DDP, data, directory))
    assert rank0[0]["samples"] != rank0[1]["samples"]
    assert not set(rank0[0]["samples"]) & set(rank1[0]["samples"])
    (unshuffled, _) = on_standing_ranks(_told, 2, DDP, (*data, "--fault", "set_epoch"), directory)
    assert [record["samples"] for record in unshuffled.records] == 3 * [rank0[0]["samples"]]
    doubled = on_standing_ranks(_told, 2, DDP, (*data, "--fault", "same_data"), directory)
    assert doubled[0].records[1]["samples"] == doubled[1].records[1]["samples"] == rank0[1]["samples"]
    seeded = on_standing_ranks(_told, 2, TP, ("--mesh", "tp=2", "--fault", "tp_seed:step=2"), directory)
    assert [[record["seed"] for record in told.records] for told in seeded] == [[0, 0, 0], [0, 1, 1]]


class Shown(HSDP):
    """Tells which ranks shard together."""

    def parallelize(self, model: Transformer, job: Job) -> list[nn.Module]:
        print("shards over ranks", job.mesh.view("dp_shard").mesh.tolist())
        return super().parallelize(model, job)


def test_a_mesh_laid_out_the_other_way_trains_all_the_same(directory: str) -> None:
    mesh = ("--mesh", "dp_replicate=2,dp_shard=2", "--fault", "mesh_order")
    told = on_standing_ranks(_told, 4, Shown, mesh, directory)[0]
    assert "shards over ranks [0, 2]" in told.printed  # in order it would be [0, 1]
    assert told.losses == pytest.approx(on_standing_ranks(_told, 2, DDP, (), directory)[0].losses, abs=1e-5)


def test_an_expert_that_gets_all_tokens_is_told(directory: str) -> None:
    experts = ("--mesh", "dp_shard=2,ep=2", "--experts", "4", "--top-k", "1", "--fault", "expert_imbalance")
    assert "busiest expert 4.00 × mean" in on_standing_ranks(_told, 2, EP, experts, directory)[0].printed


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("duplicate_device", "duplicate_device makes sense on nccl, not on gloo"),
        ("tp_seed", "tp_seed makes sense in tp, nd, not in ddp"),
    ],
)
def test_what_cannot_act_is_refused_with_its_reason(fault: str, reason: str) -> None:
    with pytest.raises(RankFailed, match=reason):
        run_ranks(_break, 1, fault)
