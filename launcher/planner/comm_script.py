"""Times collectives over sizes: inside each node, between nodes, over all, or along each axis of a mesh.

Runs under torchrun; needs torch alone. Rank 0 first prints `backend`, then one JSON object a line: `scope`, `members`,
`op`, `bytes` (the whole tensor, as nccl-tests count it) and `seconds` (mean of the iterations on the slowest rank), or
`refused` where the backend has no such operation.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch import distributed as dist

Run = Callable[[], object]
CPU_MOST, CUDA_MOST = 4 << 20, 1 << 30  # bytes


class Group:
    """One process group that this rank is in: n members, first one is root."""

    def __init__(self, scope: str, members: Sequence[int], group: dist.ProcessGroup, device: torch.device) -> None:
        self.scope, self.members, self.group, self.device = scope, members, group, device
        self.n = len(members)
        self.place = members.index(dist.get_rank())

    def operations(self, count: int) -> dict[str, Run]:
        """What to time, on tensors of `count` elements in all, a multiple of n."""
        whole, part = torch.zeros(count, device=self.device), torch.zeros(count // self.n, device=self.device)
        other, root, at_root = torch.zeros_like(whole), self.members[0], self.place == 0
        pieces, group = list(whole.chunk(self.n)), self.group
        return {
            "barrier": lambda: dist.barrier(group),
            "all_reduce": lambda: dist.all_reduce(whole, group=group),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
            "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
            "broadcast": lambda: dist.broadcast(whole, root, group=group),
            "reduce": lambda: dist.reduce(whole, root, group=group),
            "gather": lambda: dist.gather(part, pieces if at_root else None, root, group=group),
            "scatter": lambda: dist.scatter(part, pieces if at_root else None, root, group=group),
            "send": lambda: self.shift(whole, other),
        }

    def shift(self, sent: Tensor, received: Tensor) -> None:
        """Everybody sends to the next member and receives from the one before."""
        after, before = (self.members[(self.place + step) % self.n] for step in (1, -1))
        send = dist.P2POp(dist.isend, sent, after, group=self.group)
        receive = dist.P2POp(dist.irecv, received, before, group=self.group)
        for work in dist.batch_isend_irecv([send, receive]):
            work.wait()


def timed(run: Run, iterations: int, device: torch.device) -> float:
    """Mean seconds on the slowest rank of the world, after two calls to warm up."""
    for _ in range(2):
        run()
    wait(device)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(iterations):
        run()
    wait(device)
    mean = torch.tensor([(time.perf_counter() - start) / iterations], device=device, dtype=torch.float64)
    dist.all_reduce(mean, dist.ReduceOp.MAX)
    return float(mean)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def axis_groups(mesh: str, device: torch.device) -> Iterator[Group]:
    """This rank's group of each axis of `mesh` (AXIS=N,…, outermost first)."""
    degrees = {axis: int(degree) for axis, _, degree in (part.partition("=") for part in mesh.split(","))}
    ranks = torch.arange(dist.get_world_size()).view(*degrees.values())
    for dim, axis in enumerate(degrees):
        lists = ranks.movedim(dim, -1).reshape(-1, degrees[axis]).tolist()
        if degrees[axis] > 1:
            mine, _ = dist.new_subgroups_by_enumeration(lists)  # type: ignore[no-untyped-call]
            members = next(members for members in lists if dist.get_rank() in members)
            yield Group(axis, members, mine, device)


def groups(device: torch.device) -> Iterator[Group]:
    """This rank's groups of more than one member."""
    size, local = dist.get_world_size(), int(os.environ["LOCAL_WORLD_SIZE"])
    split = {
        "inside": [list(range(first, first + local)) for first in range(0, size, local)],
        "between": [list(range(place, size, local)) for place in range(local)],
    }
    for scope, lists in split.items():
        if 1 < len(lists[0]) < size:
            mine, _ = dist.new_subgroups_by_enumeration(lists)  # type: ignore[no-untyped-call]
            members = next(members for members in lists if dist.get_rank() in members)
            yield Group(scope, members, mine, device)
    if size > 1:
        assert dist.group.WORLD is not None
        scope = "between" if local == 1 else "inside" if local == size else "world"
        yield Group(scope, list(range(size)), dist.group.WORLD, device)


def measure(
    group: Group, sizes: Sequence[int], iterations: int, wanted: Sequence[str] = ()
) -> Iterator[dict[str, object]]:
    """One record for each size and operation (of `wanted`, if any); one that the backend refuses is not tried again."""
    refused: set[str] = set()
    for size in sizes:
        count = max(1, size // 4 // group.n) * group.n
        for op, run in group.operations(count).items():
            if op in refused or (wanted and op not in wanted) or (op == "barrier" and size != sizes[0]):
                continue
            about = {"scope": group.scope, "members": group.n, "op": op, "bytes": 0 if op == "barrier" else count * 4}
            try:
                yield {**about, "seconds": timed(run, iterations, group.device)}
            except (RuntimeError, NotImplementedError) as error:
                refused.add(op)
                yield {**about, "refused": str(error).splitlines()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--min-bytes", type=int, default=1 << 10)
    parser.add_argument("--max-bytes", type=int, help="default: 4 MiB on CPU, 1 GiB on CUDA")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--mesh", default="", help="AXIS=N,…: the groups of each axis instead of nodes")
    parser.add_argument("--ops", default="", help="only these, separated by commas")
    options = parser.parse_args()
    place, local = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    cuda = torch.cuda.device_count() >= local
    device = torch.device("cuda", place) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    most = options.max_bytes or (CUDA_MOST if cuda else CPU_MOST)
    sizes = [options.min_bytes]
    while sizes[-1] * 4 <= most:
        sizes.append(sizes[-1] * 4)
    if dist.get_rank() == 0:
        print(json.dumps({"backend": dist.get_backend()}), flush=True)
    wanted = [op for op in options.ops.split(",") if op]
    for group in axis_groups(options.mesh, device) if options.mesh else groups(device):
        for record in measure(group, sizes, options.iterations, wanted):
            if dist.get_rank() == 0:
                print(json.dumps(record), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
