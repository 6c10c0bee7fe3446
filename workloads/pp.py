"""PP: consecutive layers are stages on different ranks; micro-batches flow through them, forward and backward.

Per step and stage boundary each micro-batch's activations are sent once and their gradients once: the least traffic of
all, so it goes over the slowest links. Its price is the bubble, (K − 1)/(vM + K − 1) of the time with K ranks, v stages
each and M micro-batches, and the activations that wait for their backward: all M under GPipe, at most K − stage under
1F1B. ZBV and DualPipeV fill the bubble with the weight half of the backward. With dp_shard or dp_replicate above 1 each
stage is sharded by FSDP, gathered once a step. At the end bubble and peak are printed as measured and as in theory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, installed or not

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from workloads.common.data import Batch
from workloads.common.gradients import local
from workloads.common.loop import run
from workloads.common.model import Transformer, loss_of
from workloads.common.options import Options, flag
from workloads.common.peers import FailTogether
from workloads.common.pipeline import (
    SCHEDULES,
    Meter,
    Pipeline,
    V,
    build_schedule,
    cut,
    expected_timeline,
    split_layers,
    stages_by_hand,
    stages_by_tracing,
)
from workloads.common.pipeline_theory import bubble_formula
from workloads.common.strategy import Job, Strategy
from workloads.common.weights import materialize
from workloads.hsdp import HSDP


@dataclass(frozen=True)
class PPOptions(Options):
    schedule: str = flag("1F1B", "order of forwards and backwards", choices=tuple(SCHEDULES))
    stages: int = flag(0, "stages per rank; 0 is what the schedule needs, or 2 where it may have several")
    split: str = flag("manual", "manual removes layers; tracer cuts the exported graph", choices=("manual", "tracer"))
    lighter: int = flag(1, "layers fewer on the first and on the last stage, which also embed and predict")
    accumulate: int = flag(8, "micro-batches per step")

    def pipeline(self, ranks: int) -> Pipeline:
        """Raises ValueError where the schedule does not allow the number of stages."""
        usual = 1 if SCHEDULES[self.schedule].startswith("one") else 2
        return Pipeline(self.schedule, ranks, self.stages or usual, self.accumulate)


class PP(Strategy):
    options: type[PPOptions] = PPOptions
    axes: Sequence[str] = ("pp", "dp_replicate", "dp_shard")

    def parallelize(self, model: Transformer, job: Job) -> list[nn.Module]:
        assert isinstance(job.options, PPOptions)
        self.rank, self.group = job.mesh.index("pp"), job.mesh.view("pp").get_group()
        self.shape = job.options.pipeline(job.mesh.degree("pp"))
        split = split_layers(job.config.layers, self.shape.stages, job.options.lighter)
        if job.options.split == "tracer":
            stages = self._traced(model, split, job)
        else:
            parts = {
                index: cut(model, split[index], index == 0, index == self.shape.stages - 1)
                for index in self.shape.stages_of(self.rank)
            }
            for part in parts.values():
                self.parallelize_stage(part, job)
                part.forward = partial(part.forward, positions=self.positions(job))  # type: ignore[method-assign]
            stages = stages_by_hand(parts, self.shape, job.world.device, self.group)
        self.meter = Meter(job.world.device)
        for stage in stages:
            self.meter.watch(stage)
        self.schedule = build_schedule(stages, self.shape, loss_of)
        self.peers = FailTogether(f"rank {job.world.rank} ({job.mesh})")
        return [stage.submod for stage in stages]

    def _traced(self, model: Transformer, split: list[range], job: Job) -> list[Any]:
        if job.wraps:
            raise ValueError("a traced stage cannot be wrapped by block: FSDP and bfloat16 want --split manual")
        if self.shape.stages > 2:  # every layer needs the rotation that the first stage computes
            raise ValueError(
                "torch cannot pass a tensor over a stage: --split tracer has two stages, --split manual more"
            )
        materialize([model], job.world.device, self.weights(job))
        size = job.options.batch // self.shape.microbatches
        microbatch = torch.zeros(size, job.options.seq, dtype=torch.int64, device=job.world.device)
        return stages_by_tracing(model, split, microbatch, self.shape, self.group, self.rank)

    def positions(self, job: Job) -> Tensor:
        """Positions of this rank's tokens, `(S,)`: stages after the first see activations, which do not tell them."""
        return torch.arange(job.options.seq, device=job.world.device)

    def parallelize_stage(self, part: Transformer, job: Job) -> None:
        """What happens inside a stage: FSDP over the data axes, gathered once and kept for all micro-batches."""
        if job.wraps:
            HSDP().parallelize(part, job)
            assert isinstance(part, FSDPModule)
            part.set_reshard_after_forward(False)
        else:
            self.tune_blocks(part, job)

    def forward_backward(self, parts: list[nn.Module], batch: Batch, job: Job) -> Tensor | None:
        losses: list[Tensor] = []
        inputs = (batch.inputs,) if self.rank == 0 else ()
        last = 0 if SCHEDULES[self.shape.schedule] == V else self.shape.ranks - 1
        with self.peers, self.meter.step():
            self.schedule.step(*inputs, target=batch.targets if self.rank == last else None, losses=losses)
        return local(torch.stack(losses).mean().detach()) if losses else None  # replicated where it is a DTensor

    def finish(self, parts: list[nn.Module], job: Job) -> None:
        self.peers.close()
        mine = torch.tensor([self.meter.busy_s, self.meter.wall_s, self.meter.peak], dtype=torch.float64)
        every = [torch.zeros_like(mine, device=job.world.device) for _ in range(self.shape.ranks)]
        dist.all_gather(every, mine.to(job.world.device), group=self.group)
        if job.world.rank:
            return
        busy, wall, peak = torch.stack(every).cpu().unbind(1)
        theory = expected_timeline(self.schedule, self.shape)
        formula = bubble_formula(self.shape.ranks, self.shape.stages_per_rank, self.shape.microbatches)
        measured, stored = float(1 - busy.sum() / wall.sum()), peak.int().tolist()
        print(f"bubble: measured {measured:.3f}, theory {theory.bubble:.3f}, (K − 1)/(vM + K − 1) = {formula:.3f}")
        print(f"peak of stored micro-batches by rank: measured {stored}, theory {list(theory.peak.values())}")


if __name__ == "__main__":
    run(PP())
