"""The ring attention that comes with torch, also on CPUs, for comparison with our own."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental import _attention, register_sharding

from workloads.common.context_parallel import SEQUENCE
from workloads.common.model import AttentionFn

public: Any = _attention  # torch gives these no types
private: Any = sys.modules[_attention._templated_ring_attention.__module__]  # another one in torch 2.9 than later


def torch_ring(mesh: DeviceMesh, zigzag: bool, rotate: str) -> AttentionFn:
    """Torch's ring over a one-axis mesh, through its dispatcher for scaled dot-product attention on DTensors.

    `rotate` is how keys travel: `allgather` (once) or `alltoall` (a hop at a time).
    """
    public.set_rotate_method(rotate)
    public._enable_context_parallel_dispatcher()
    if mesh.device_type == "cpu":
        _teach_torch_the_cpu_kernel()

    def sharded(x: Tensor, copies: int = 1) -> Tensor:
        heads_first = x.transpose(1, SEQUENCE).repeat_interleave(copies, dim=1)
        return DTensor.from_local(heads_first, mesh, [Shard(SEQUENCE)], run_check=False)

    def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        # Without a mask every order of the keys is as good, and torch refuses to balance it.
        public._cp_options.enable_load_balance = zigzag and causal
        groups = q.shape[2] // k.shape[2]
        out: Any = F.scaled_dot_product_attention(sharded(q), sharded(k, groups), sharded(v, groups), is_causal=causal)
        local: Tensor = out.to_local()
        return local.transpose(1, SEQUENCE)

    return attention


def _teach_torch_the_cpu_kernel() -> None:
    """Shardings and ring for the CPU's attention kernel: torch registers those of CUDA's kernels only."""
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    dispatcher: Any = DTensor._op_dispatcher
    if forward in dispatcher._custom_op_handlers:
        return
    register_sharding(forward)(lambda *_, **__: [([Shard(SEQUENCE)] * 2, [Shard(SEQUENCE)] * 3 + [None] * 2)])
    register_sharding(backward)(lambda *_, **__: [([Shard(SEQUENCE)] * 3, [Shard(SEQUENCE)] * 6 + [None] * 2)])

    def handler(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        info = dispatcher.unwrap_to_op_info(op, args, kwargs)
        dispatcher.sharding_propagator.propagate(info)
        run = _ring_forward if op is forward else _ring_backward
        results = run(op, info.compute_mesh.get_group(), info.local_args)
        return dispatcher.wrap(results, info.output_sharding.output_spec)

    dispatcher._custom_op_handlers[forward] = dispatcher._custom_op_handlers[backward] = handler


def _ring_forward(op: Any, group: Any, arguments: tuple[Any, ...]) -> Any:
    causal = arguments[4] if len(arguments) > 4 else False  # arguments equal to their defaults do not arrive
    return private._templated_ring_attention(group, SEQUENCE, op, *arguments[:3], is_causal=causal, dropout_p=0.0)


def _ring_backward(op: Any, group: Any, arguments: tuple[Any, ...]) -> Any:
    names = ("grad_out", "query", "key", "value", "out", "logsumexp", "dropout_p", "is_causal")
    named = dict(zip(names, arguments, strict=True))
    return private._templated_ring_attention_backward(group, SEQUENCE, op, grad_out_name="grad_out", **named)
