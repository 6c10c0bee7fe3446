"""Compiled workloads on real ranks: block by block before FSDP wraps them, as a whole where DDP breaks the graph."""

from __future__ import annotations

import os
from functools import partial
from unittest.mock import patch

import pytest
import torch

from tests.workloads.ranks import run_ranks
from tests.workloads.reference import TINY, single_process
from workloads.common.config import preset
from workloads.common.loop import train
from workloads.common.strategy import Strategy
from workloads.ddp import DDP, DDPOptions
from workloads.fsdp import FSDP


def _compiled(backend: str, kind: type[Strategy], *argv: str) -> tuple[list[float], int]:
    """The losses of three steps, and how many graphs were compiled."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of processes for a handful of kernels
    from torch._dynamo.utils import counters

    with patch.object(torch, "compile", partial(torch.compile, backend=backend)):
        losses = train(kind(), [*TINY, "--steps", "3", "--compile", *argv]).losses
    return losses, counters["aot_autograd"]["total"]


def test_a_compiled_block_under_fsdp_trains_the_same() -> None:
    reference = single_process(preset("debug", layers=1), steps=3).losses
    for losses, graphs in run_ranks(
        _compiled, 2, "inductor", FSDP, "--layers", "1", "--mesh", "dp_shard=2", deadline=280.0
    ):
        assert losses == pytest.approx(reference, abs=1e-5)
        assert graphs == 1


def test_compiled_ddp_breaks_its_graph_at_the_buckets_and_trains_the_same() -> None:
    reference = single_process(preset("debug", layers=4), steps=3).losses
    argv = ("--layers", "4", "--bucket-mb", "1")  # of 3.4 MB in all; where the graph breaks is before any kernel
    for losses, graphs in run_ranks(_compiled, 2, "aot_eager", DDP, *argv):
        assert losses == pytest.approx(reference, abs=1e-5)
        assert graphs == 3


def test_buckets_that_the_compiler_refuses_are_refused() -> None:
    with pytest.raises(ValueError, match="first bucket has 1 MB"):
        DDPOptions(compile=True, bucket_mb=0.5)
