"""TP: every matrix is cut over the ranks of the tp axis, by columns, then by rows: heads and hidden units are shared.

Column-parallel products (q, k, v, gate, up) need no collective forward, their backward sums the input's gradient.
Row-parallel products (out, down) leave partial sums: an all-reduce, or with sequence parallelism a reduce-scatter over
the tokens, whose counterpart is an all-gather before the next column-parallel product. Same bytes, but norms and
residuals then hold 1/tp of the tokens. Four activations a layer and step, all waited for: keep tp inside NVLink.
The vocabulary is cut too: embedding rows, and logits that are never gathered (loss_parallel).
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, installed or not

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from workloads.common.fused import fuse, fused_source
from workloads.common.loop import run
from workloads.common.model import Transformer
from workloads.common.options import flag
from workloads.common.strategy import Job
from workloads.common.weights import Source
from workloads.fsdp import FSDP, FSDPOptions, shard

TOKENS = Shard(1)  # activations are (B, S, D)


@dataclass(frozen=True)
class TPOptions(FSDPOptions):
    sequence_parallel: bool = flag(True, "cut norms and residuals over the tokens")
    loss_parallel: bool = flag(True, "leave logits cut over the vocabulary")
    fused: bool = flag(False, "one product for q, k, v and one for gate, up")
    async_tp: bool = flag(False, "overlap gathers with products by symmetric memory (CUDA, with --compile)")


def plan(options: TPOptions) -> dict[str, ParallelStyle]:
    """How each module of the model is cut, by its name; `*` stands for every layer."""
    between = TOKENS if options.sequence_parallel else Replicate()
    styles: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "output": ColwiseParallel(
            input_layouts=between,
            output_layouts=Shard(-1) if options.loss_parallel else Replicate(),
            use_local_output=not options.loss_parallel,
        ),
        "layers.*.attention": PrepareModuleInput(
            input_layouts=(between, None), desired_input_layouts=(Replicate(), None)
        ),
        "layers.*.mlp": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),)),
    }
    for name in ("attention.q", "attention.k", "attention.v", "attention.qkv", "mlp.gate", "mlp.up", "mlp.gate_up"):
        styles[f"layers.*.{name}"] = ColwiseParallel()
    for name in ("attention.out", "mlp.down"):
        styles[f"layers.*.{name}"] = RowwiseParallel(output_layouts=between)
    if options.sequence_parallel:
        styles |= dict.fromkeys(("norm", "layers.*.attention_norm", "layers.*.mlp_norm"), SequenceParallel())
    return styles


def cut(model: Transformer, mesh: DeviceMesh, options: TPOptions) -> None:
    """Cut the model over the one-axis `mesh`. Raises ValueError if heads or vocabulary do not divide."""
    config, degree = model.config, mesh.size()
    if config.kv_heads % degree or config.vocab % degree:
        raise ValueError(f"tp={degree} must divide kv_heads {config.kv_heads} and the vocabulary {config.vocab}")
    if config.tied:
        raise ValueError("tensor parallelism wants an output of its own: choose a preset that is not tied")
    if options.fused:
        fuse(model)
    present = {name: module for name, module in model.named_modules() if module is not None}
    parallelize_module(model, mesh, {name: style for name, style in plan(options).items() if _matches(name, present)})


def _matches(pattern: str, modules: dict[str, nn.Module]) -> bool:
    head, star, tail = pattern.partition("*")
    return any(name.startswith(head) and name.endswith(tail) for name in modules) if star else pattern in modules


def enable_async_tp(mesh: DeviceMesh, options: TPOptions) -> str:
    """Let the compiler pipeline gathers and products where it can; says what came of it."""
    if mesh.device_type != "cuda" or not options.compile:
        return "async TP is inactive: it needs CUDA devices with symmetric memory and --compile"
    import torch._inductor.config
    from torch.distributed._symmetric_memory import enable_symm_mem_for_group

    torch._inductor.config._micro_pipeline_tp = True
    enable_symm_mem_for_group(mesh.get_group().group_name)
    return "async TP is active"


class TP(FSDP):
    options = TPOptions
    axes = ("dp_replicate", "dp_shard", "tp")

    def rows(self, job: Job) -> tuple[str, ...]:
        return ("tp_sequence" if TPOptions.of(job).sequence_parallel else "tp", "hsdp", "zero3")

    def weights(self, job: Job) -> Source:
        source = super().weights(job)
        return fused_source(source, job.config, job.mesh.degree("tp")) if TPOptions.of(job).fused else source

    def parallelize(self, model: Transformer, job: Job) -> list[nn.Module]:
        options = TPOptions.of(job)
        cut(model, job.mesh.view("tp"), options)
        if options.async_tp and job.world.rank == 0:
            print(enable_async_tp(job.mesh.view("tp"), options), flush=True)
        self.tune_blocks(model, job)
        if job.wraps:
            shard(model, job.mesh.sharded, options)
        return [model]

    def loss_context(self, job: Job) -> AbstractContextManager[None]:
        return loss_parallel() if TPOptions.of(job).loss_parallel else nullcontext()

    def synchronize_gradients(self, part: nn.Module, last: bool, job: Job) -> None:
        if job.wraps:
            super().synchronize_gradients(part, last, job)


if __name__ == "__main__":
    run(TP())
