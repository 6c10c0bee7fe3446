"""A small real workload under the user's Python: matrix products, a collective inside the host, then over hosts.

One process a host does all of it, since importing torch costs more than the rest. Each host is told all phases in
advance, and meets the members of its group of a phase in the store of the group's first host.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

PRODUCT_SIZE = {"cpu": 256, "cuda": 8192}  # on a CPU shorter than a slice of time, so that some run undisturbed
PRODUCTS = {"cpu": 100, "cuda": 15}
ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 24}  # float32 numbers of one collective
REPEATS = 5
INSIDE = timedelta(seconds=30)


@dataclass(frozen=True)
class Part:
    """This host's part. `addresses` of all hosts, the store's `port` on each, `patience` with one phase in s."""

    name: str
    addresses: Mapping[str, str]
    port: int
    patience: float
    devices: Sequence[str]


def exercise(
    name: str,
    addresses: Mapping[str, str],
    port: int,
    patience: float,
    interface: str | None,
    phases: Sequence[Sequence[Sequence[str]]],
    alone: bool,
) -> dict[str, Any]:
    """`phases`: the groups of hosts that meet at the same time. `alone`: also what a host does for itself.

    `{"products": [{"device", "flops", "right"}], "inside": {"seconds"} or {"error"},
    "phases": [{"group", "seconds" of each device, "bytes"} or {"group", "error"}, None for a rest]}`.
    """
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    import torch

    torch.set_num_threads(1)
    devices = [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]
    part = Part(name, addresses, port, patience, devices)
    own = c10d().TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False) if phases else None
    answer: dict[str, Any] = {}
    if alone:
        answer["products"] = [_product(device) for device in devices]
        answer["inside"] = _attempt(lambda: {"seconds": _collective_inside(devices)})
    groups = [next((group for group in phase if name in group), None) for phase in phases]
    answer["phases"] = [
        group and {"group": group, **_attempt(lambda: _meet(part, own, group, number))}  # noqa: B023 - called at once
        for number, group in enumerate(groups)
    ]
    return answer


@cache
def c10d() -> Any:
    """torch.distributed, which has names that its type stubs do not know."""
    import torch.distributed

    return torch.distributed


def _attempt(action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer of `action`, or its error in one line."""
    try:
        return action()
    except Exception as error:
        return {"error": (str(error).strip().splitlines() or [type(error).__name__])[0][:300]}


def _product(device: str) -> dict[str, Any]:
    """Speed of matrix products of small whole numbers, in operations a second, and whether the result is right.

    Such products are exact also in TF32. Freivalds' check: (A B) v = A (B v) for a random v.
    """
    import torch

    kind = device.partition(":")[0]
    size = PRODUCT_SIZE[kind]
    torch.backends.cuda.matmul.allow_tf32 = True
    a, b = (torch.randint(-4, 5, (size, size), device=device).float() for _ in range(2))
    times = []
    for _ in range(PRODUCTS[kind]):
        began = time.perf_counter()
        result = a @ b
        if kind == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    v = torch.randint(-4, 5, (size, 1), device=device).double()
    right = torch.equal(result.double() @ v, a.double() @ (b.double() @ v))
    return {"device": device, "flops": 2 * size**3 / min(times), "right": right}


def _collective_inside(devices: Sequence[str]) -> float:
    """Seconds of an all-reduce over the host's devices by NCCL, without devices over two threads by gloo."""
    import torch

    if devices[0] == "cpu":
        return _gloo_inside()
    if len(devices) == 1:
        return 0.0
    tensors = [torch.ones(ELEMENTS["cuda"], device=device) for device in devices]

    def once() -> None:
        torch.cuda.nccl.all_reduce(tensors)  # type: ignore[no-untyped-call]
        for device in devices:
            torch.cuda.synchronize(device)

    once()
    _check(tensors[-1], len(devices))
    return _fastest(once)


def _gloo_inside() -> float:
    import torch

    store, times, failures = c10d().HashStore(), [], []

    def rank(number: int) -> None:
        try:
            group = c10d().ProcessGroupGloo(store, number, 2, INSIDE)
            tensor = torch.ones(ELEMENTS["cpu"])
            group.allreduce([tensor]).wait()
            _check(tensor, 2)
            times.append(_fastest(lambda: group.allreduce([tensor]).wait()))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return min(times)


def _meet(part: Part, own: Any, group: Sequence[str], phase: int) -> dict[str, Any]:
    """All-reduces in one group of hosts, device by device.

    A member may come late from phases that failed, so the patience to meet grows with them.
    """
    patience = timedelta(seconds=part.patience * (phase + 1))
    leader = group[0]
    store = (
        own
        if leader == part.name
        else c10d().TCPStore(part.addresses[leader], part.port, is_master=False, timeout=patience)
    )
    store.set(f"{phase}/{part.name}", "here")
    store.wait([f"{phase}/{member}" for member in group], patience)
    backend = "gloo" if part.devices[0] == "cpu" else "nccl"
    c10d().init_process_group(
        backend,
        store=c10d().PrefixStore(f"{phase}/", store),
        rank=list(group).index(part.name),
        world_size=len(group),
        timeout=timedelta(seconds=part.patience),
    )
    try:
        seconds = [_all_reduce(device, len(group)) for device in part.devices]
    finally:
        c10d().destroy_process_group()
    return {"seconds": seconds, "bytes": 4 * ELEMENTS[part.devices[0].partition(":")[0]]}


def _all_reduce(device: str, members: int) -> float:
    import torch

    kind = device.partition(":")[0]
    tensor = torch.ones(ELEMENTS[kind], device=device)

    def once() -> None:
        c10d().all_reduce(tensor)
        if kind == "cuda":
            torch.cuda.synchronize(device)

    if kind == "cuda":
        torch.cuda.set_device(device)
    once()
    _check(tensor, members)
    return _fastest(once)


def _check(tensor: Any, members: int) -> None:
    """A sum of ones. Raises RuntimeError when the collective gave another."""
    if not bool((tensor == members).all()):
        raise RuntimeError("the collective gave a wrong sum")


def _fastest(action: Callable[[], Any]) -> float:
    """Seconds of the fastest of a few repetitions: the others were disturbed."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)
