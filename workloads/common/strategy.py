"""What a workload decides: its mesh, how it cuts the model, and what one step does. The loop does the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workloads.common.config import ModelConfig
from workloads.common.data import Batch
from workloads.common.gradients import local
from workloads.common.hugging_face import stored
from workloads.common.mesh import Mesh, World
from workloads.common.model import Block, Transformer, loss_of
from workloads.common.options import Options
from workloads.common.states import WORKLOADS, default_degrees
from workloads.common.weights import Source, seeded

ADAMW: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.1}


@dataclass(frozen=True)
class Job:
    """What every part of a running workload may look at."""

    options: Options
    world: World
    mesh: Mesh
    config: ModelConfig

    @property
    def output(self) -> Path:
        """Where traces and snapshots go."""
        progress = os.environ.get("DLAUNCH_PROGRESS")
        return Path(self.options.output or (Path(progress).parent if progress else "."))

    @property
    def holders(self) -> int:
        """How many ranks hold (a piece or a copy of) each parameter, and how many know the loss: those of one stage."""
        return self.world.size // self.mesh.degree("pp")

    @property
    def wraps(self) -> bool:
        """Whether FSDP wraps what other cuts leave: over several data ranks, or over one for its mixed precision."""
        return self.mesh.data_degree > 1 or self.options.dtype == "bfloat16"


class Strategy:
    """Override what differs; `parallelize` always does."""

    options: type[Options] = Options
    axes: Sequence[str] = ("dp_replicate", "dp_shard")  # those that the workload understands

    def rows(self, job: Job) -> tuple[str, ...]:
        """The rows of the table of states that this run follows."""
        return WORKLOADS[self.name]

    @property
    def name(self) -> str:
        """The workload's, by its file."""
        return Path(sys.modules[type(self).__module__].__file__ or "").stem

    def degrees(self, given: dict[str, int], world: World) -> dict[str, int]:
        """The mesh, from what --mesh or $DLAUNCH_MESH gives; where neither does, the workload's own."""
        return given or default_degrees(self.name, world.nodes, world.local_size)

    def tune_blocks(self, model: Transformer, job: Job) -> None:
        """Recomputation, then compilation: after blocks were cut by tensor or expert, before data parallelism wraps."""
        for block in model.layers.values():
            assert isinstance(block, Block)
            block.checkpointing = job.options.recompute
            if job.options.compile:
                block.compile()

    def parallelize(self, model: Transformer, job: Job) -> list[nn.Module]:
        """Cut and wrap the model, which is still on the meta device; returns this rank's parts (one but for pipelines).

        Parameters that are still on the meta device afterwards are allocated and filled by the loop.
        """
        raise NotImplementedError

    def weights(self, job: Job) -> Source:
        """Where initial values come from."""
        if job.options.load:
            return stored(Path(job.options.load))
        return seeded(job.options.seed, job.config.layers)

    def optimizer(self, part: nn.Module, job: Job) -> torch.optim.Optimizer:
        return torch.optim.AdamW(part.parameters(), lr=job.options.lr, **ADAMW)

    def local_batch(self, batch: Batch, job: Job) -> Batch:
        """This rank's part of its data rank's batch, with positions where the sequence is cut."""
        return batch

    def forward_backward(self, parts: list[nn.Module], batch: Batch, job: Job) -> Tensor | None:
        """Leave averaged gradients in the parts; returns the mean loss of this rank's tokens, None where unknown."""
        total = torch.zeros((), dtype=torch.float64, device=job.world.device)
        for index, micro in enumerate(batch.split(job.options.accumulate)):
            self.synchronize_gradients(parts[0], index + 1 == job.options.accumulate, job)
            with self.loss_context(job):
                loss = loss_of(parts[0](micro.inputs, micro.positions), micro.targets) / job.options.accumulate
                torch.autograd.backward(loss)
            total += local(loss.detach())  # replicated where it is a DTensor
        return total

    def loss_context(self, job: Job) -> AbstractContextManager[None]:
        """Entered around each micro-batch's forward, loss and backward."""
        return nullcontext()

    def finish(self, parts: list[nn.Module], job: Job) -> None:
        """Called on every rank after the last step, while the process group is still there."""

    def synchronize_gradients(self, part: nn.Module, last: bool, job: Job) -> None:
        """Called before each micro-batch: reduce gradients across ranks only in the last."""
