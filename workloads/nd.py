"""ND: any product of pp × dp_replicate × dp_shard × cp × tp, with ep as a second view of dp_shard × cp × tp.

The order in which a model is cut: stages, then heads and matrices (tp), attention over the sequence (cp), experts (ep),
then FSDP over what is left: dp_shard × cp, replicated over dp_replicate. Each cut is the one of its own workload. The
outermost axis talks least and may cross the slowest links; tp talks most and belongs innermost.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, installed or not

from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor.parallel import PrepareModuleInput, loss_parallel, parallelize_module

from workloads.common.data import Batch
from workloads.common.fused import fused_source
from workloads.common.loop import run
from workloads.common.mesh import World
from workloads.common.model import Transformer
from workloads.common.moe import mixtures
from workloads.common.options import flag
from workloads.common.states import rows_for
from workloads.common.strategy import Job, Strategy
from workloads.common.weights import Source
from workloads.cp import CP, CPOptions, positions_of, spread_attention
from workloads.ep import EPOptions, keep_balance, parallelize_experts
from workloads.fsdp import shard
from workloads.pp import PP, PPOptions
from workloads.tp import TOKENS, TPOptions, cut


@dataclass(frozen=True)
class NDOptions(PPOptions, CPOptions, EPOptions, TPOptions):
    experts: int | None = flag(None, "experts per feed-forward (0: dense)")
    accumulate: int = flag(4, "micro-batches per step, those of the pipeline")


class ND(PP):
    options: type[NDOptions] = NDOptions
    axes: Sequence[str] = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")

    def degrees(self, given: dict[str, int], world: World) -> dict[str, int]:
        """dp_shard, where it is not given, takes the ranks that are left, outside of cp and tp: 1 if there are none."""
        degrees = super().degrees(given, world)
        if "dp_shard" in degrees:
            return degrees
        taken = math.prod(degree for axis, degree in degrees.items() if axis != "ep")
        inner = [axis for axis in degrees if axis in ("cp", "tp", "ep")]
        outer = {axis: degree for axis, degree in degrees.items() if axis not in inner}
        return {**outer, "dp_shard": max(1, world.size // taken), **{axis: degrees[axis] for axis in inner}}

    def weights(self, job: Job) -> Source:
        source = super().weights(job)
        degree = job.mesh.degree("tp")
        return fused_source(source, job.config, degree) if degree > 1 and NDOptions.of(job).fused else source

    def rows(self, job: Job) -> tuple[str, ...]:
        return rows_for(job.mesh.degrees)

    def parallelize(self, model: Transformer, job: Job) -> list[nn.Module]:
        if job.mesh.degree("pp") > 1:
            return super().parallelize(model, job)
        self.parallelize_stage(model, job)
        return [model]

    def parallelize_stage(self, part: Transformer, job: Job) -> None:
        mesh, options = job.mesh, NDOptions.of(job)
        if mesh.degree("tp") > 1:
            self._cut_tensors(part, job)
        if mesh.degree("cp") > 1:
            spread_attention(part, job)
        if job.config.experts:
            parallelize_experts(part, job)
        self.tune_blocks(part, job)
        shard(part, mesh.sharded, options)
        if mesh.degree("pp") > 1:
            assert isinstance(part, FSDPModule)
            part.set_reshard_after_forward(False)  # gathered once a step, for all micro-batches

    def _cut_tensors(self, part: Transformer, job: Job) -> None:
        mesh, options = job.mesh.view("tp"), NDOptions.of(job)
        if job.config.experts and not options.sequence_parallel:
            raise ValueError("tp with experts needs --sequence-parallel: each tp rank routes its own tokens")
        cut(part, mesh, options)
        for moe in mixtures(part):
            moe.router.sequence_group = mesh.get_group()
            local = PrepareModuleInput(input_layouts=(TOKENS,), desired_input_layouts=(TOKENS,), use_local_output=True)
            parallelize_module(moe, mesh, local)

    def positions(self, job: Job) -> Tensor:
        return positions_of(job)

    local_batch = CP.local_batch

    def loss_context(self, job: Job) -> AbstractContextManager[None]:
        return loss_parallel() if job.mesh.degree("tp") > 1 and NDOptions.of(job).loss_parallel else nullcontext()

    def synchronize_gradients(self, part: nn.Module, last: bool, job: Job) -> None:
        assert isinstance(part, FSDPModule)
        part.set_requires_gradient_sync(last)

    def forward_backward(self, parts: list[nn.Module], batch: Batch, job: Job) -> Tensor | None:
        if job.mesh.degree("pp") > 1:
            with self.loss_context(job):
                loss = super().forward_backward(parts, batch, job)
        else:
            loss = Strategy.forward_backward(self, parts, batch, job)
        if job.config.experts:
            keep_balance(parts, job)
        return loss

    def finish(self, parts: list[nn.Module], job: Job) -> None:
        if job.mesh.degree("pp") > 1:
            super().finish(parts, job)


if __name__ == "__main__":
    run(ND())
