"""CP: each sequence is spread over the ranks of the cp axis; only attention communicates along it.

Parameters are sharded over the flattened dp_shard × cp axis, since all those ranks hold different tokens. Per step and
attention layer, with K bytes of keys and values on a rank and n ranks: the ring sends (n − 1)·K forward and
(n − 1)·K + n·2K (fp32 gradients of bf16 keys) backward, hidden behind attention; allgather receives (n − 1)·K twice and
reduce-scatters once; ulysses trades queries, keys, values and output once each way, 1/n of a rank's tokens per pair.
Choose ulysses while the heads divide, the ring beyond, both where n is larger than the heads.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, installed or not

from torch import Tensor, nn

from workloads.common.context_parallel import IMPLEMENTATIONS, Layout, context_attention
from workloads.common.data import Batch
from workloads.common.loop import run
from workloads.common.model import Block, Transformer
from workloads.common.options import Options, flag
from workloads.common.strategy import Job
from workloads.hsdp import HSDP


@dataclass(frozen=True)
class CPOptions(Options):
    impl: str = flag("ring", "how attention sees the other ranks' keys", choices=IMPLEMENTATIONS)
    ulysses: int = flag(1, "ranks that share the heads at each place of the ring")
    zigzag: bool = flag(True, "give each rank an early and a late chunk: equal work under the causal mask")
    causal: bool = flag(True, "hide later tokens")


def layout_of(job: Job) -> Layout:
    """How the cp axis shares a sequence; with impl ulysses all of it shares the heads. Raises ValueError."""
    options, degree = CPOptions.of(job), job.mesh.degree("cp")
    share = degree if options.impl == "ulysses" else options.ulysses
    if degree % share:
        raise ValueError(f"ulysses={share} does not divide cp={degree}")
    return Layout(degree // share, share, options.zigzag)


def spread_attention(model: Transformer, job: Job) -> None:
    """Let every layer's attention see the tokens of the whole cp axis."""
    options = CPOptions.of(job)
    attention = context_attention(job.mesh.view("cp"), options.impl, layout_of(job))
    for block in model.layers.values():
        assert isinstance(block, Block)
        block.attention.attention_fn = attention
        block.attention.causal = options.causal


def positions_of(job: Job) -> Tensor:
    """Positions of this rank's tokens, `(seq / cp,)`."""
    return layout_of(job).positions(job.options.seq)[job.mesh.index("cp")].to(job.world.device)


class CP(HSDP):
    options = CPOptions
    axes = ("dp_replicate", "dp_shard", "cp")

    def rows(self, job: Job) -> tuple[str, ...]:
        hops = {"allgather": "cp_allgather", "torch-allgather": "cp_allgather", "ulysses": "cp_ulysses"}
        return (hops.get(CPOptions.of(job).impl, "cp_ring"), "hsdp", "zero3")

    def parallelize(self, model: Transformer, job: Job) -> list[nn.Module]:
        spread_attention(model, job)
        return super().parallelize(model, job)

    def local_batch(self, batch: Batch, job: Job) -> Batch:
        mine = positions_of(job)
        return replace(batch, inputs=batch.inputs[:, mine], targets=batch.targets[:, mine], positions=mine)


if __name__ == "__main__":
    run(CP())
