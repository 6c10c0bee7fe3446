"""Counts the collectives that really happen: calls and bytes by kind and group size, to hold beside the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor
from torch import distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Kind(NamedTuple):
    """What is told apart: the collective and how many ranks take part."""

    collective: str
    members: int


# what each operator of torch's two families (c10d, _c10d_functional) is called in the table
_OPERATORS = {
    "allreduce_": "all_reduce",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "_allgather_base_": "all_gather",
    "allgather_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_out": "reduce_scatter",
    "alltoall_base_": "all_to_all",
    "alltoall_": "all_to_all",
    "all_to_all_single": "all_to_all",
    "broadcast_": "broadcast",
    "broadcast": "broadcast",
    "send": "send",
}


class CollectiveCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # the base is untyped
    """While active, `calls` and `bytes` grow by every collective of this thread: whole tensors, as in the table."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[Kind] = Counter()
        self.bytes: Counter[Kind] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # let it unfold into plain operators, which come here again
        namespace, _, operator = func.name().partition("::")
        if namespace in ("c10d", "_c10d_functional") and operator.partition(".")[0] in _OPERATORS:
            self._count(_OPERATORS[operator.partition(".")[0]], func, args)
        return func(*args, **(kwargs or {}))

    def _count(self, collective: str, func: Any, args: tuple[Any, ...]) -> None:
        members = _group_of(func, args).size()
        tensors = [leaves for arg in args if (leaves := _tensors(arg))]
        goes_in = sum(tensor.numel() * tensor.element_size() for tensor in tensors[-1])
        self.calls[Kind(collective, members)] += 1
        self.bytes[Kind(collective, members)] += goes_in * (members if collective == "all_gather" else 1)


def _tensors(argument: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(argument) if isinstance(leaf, Tensor)]


def _group_of(func: Any, args: tuple[Any, ...]) -> dist.ProcessGroup:
    names = [argument.name for argument in func._schema.arguments]
    if "process_group" in names:
        return dist.ProcessGroup.unbox(args[names.index("process_group")])
    group = args[names.index("group_name")]
    return group if isinstance(group, dist.ProcessGroup) else c10d._resolve_process_group(group)  # type: ignore[attr-defined]
