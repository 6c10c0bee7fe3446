"""Carries out the faults of `faults`: the loop passes its points by name and does as it is told there."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import math
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import torch
from torch import Tensor, nn
from torch import distributed as dist

from workloads.common.data import Batch, TrainingData
from workloads.common.faults import Fault, Point
from workloads.common.gradients import local
from workloads.common.mesh import World
from workloads.common.model import Block, Transformer, unwrapped


class Then(Enum):
    """What the loop does after a point."""

    GO_ON = "go on"
    LEAVE_OUT = "leave out what comes at this point"
    END = "leave the loop"


@dataclass
class Scene:
    """What a fault may reach: this rank's model, and at the point `reduce` the tensor that is going to be reduced."""

    world: World
    parts: list[nn.Module]
    sums: Tensor | None = None


Act = Callable[[Fault, Scene], Then | None]


class Faults:
    """The fault that was asked for, or none. `at` is passed by every rank at every point."""

    def __init__(self, fault: Fault | None, world: World) -> None:
        self._fault, self._world = fault, world

    def at(self, point: Point, step: int, scene: Scene) -> Then:
        """`step` counts from 0 and is reached in order; a lasting fault acts at its step and at all later ones."""
        fault = self._fault
        if fault is None or fault.kind.point != point or fault.name not in ACTS:
            return Then.GO_ON
        due = step + 1 >= fault.step if fault.name in LASTING else step + 1 == fault.step
        if not due or not self._concerns(fault):
            return Then.GO_ON
        return ACTS[fault.name](fault, scene) or Then.GO_ON

    def _concerns(self, fault: Fault) -> bool:
        if fault.name in EVERY_RANK:
            return True
        if fault.name == "slow_node":
            return self._world.rank // self._world.local_size == int(fault.settings["node"])
        return self._world.rank == fault.rank

    @property
    def column_major(self) -> bool:
        """Whether the mesh is to be laid out in the wrong order."""
        return self._is("mesh_order")

    def device(self) -> None:
        """Raises RuntimeError without a neighbour to take the device from."""
        if self._is("duplicate_device") and self._concerns_me:
            torch.cuda.set_device(self._world.local_rank - 1)

    def data(self, data: TrainingData) -> TrainingData:
        if self._is("set_epoch"):
            return replace(data, reshuffle=False)
        if self._is("same_data") and self._concerns_me:
            return replace(data, index=0)
        if self._is("dataloader") and self._concerns_me and self._fault:
            return StuckData(**vars(data), stuck_at=self._fault.step - 1)
        return data

    def workers(self, asked: int) -> int:
        """A worker that hangs needs one."""
        return max(asked, 1) if self._is("dataloader") and self._concerns_me else asked

    def seed(self, seed: int, step: int) -> int:
        lasting = self._fault is not None and step + 1 >= self._fault.step
        return seed + 1 if self._is("tp_seed") and self._concerns_me and lasting else seed

    def model(self, parts: list[nn.Module]) -> None:
        if self._is("expert_imbalance") and self._fault:
            for part in parts:
                for name, buffer in part.named_buffers():
                    if name.endswith("router.bias"):
                        buffer[int(self._fault.settings["expert"])] = 1e3

    def _is(self, name: str) -> bool:
        return self._fault is not None and self._fault.name == name

    @property
    def _concerns_me(self) -> bool:
        return self._fault is not None and self._fault.rank == self._world.rank


@dataclass(frozen=True)
class StuckData(TrainingData):
    """A data set whose worker takes a lock twice."""

    stuck_at: int = 0

    def __getitem__(self, step: int) -> Batch:
        if step == self.stuck_at:
            lock = multiprocessing.Lock()
            lock.acquire()
            lock.acquire()
        return super().__getitem__(step)


def _skip(fault: Fault, scene: Scene) -> Then:
    return Then.LEAVE_OUT


def _extra(fault: Fault, scene: Scene) -> None:
    dist.all_reduce(torch.zeros(1, device=scene.world.device))


def _order(fault: Fault, scene: Scene) -> Then | None:
    note = torch.zeros(1, device=scene.world.device)
    if scene.world.rank != fault.rank:
        dist.broadcast(note, src=0)
        return None
    dist.all_reduce(scene.sums)
    dist.broadcast(note, src=0)
    return Then.LEAVE_OUT


def _shape(fault: Fault, scene: Scene) -> Then:
    dist.all_reduce(torch.zeros(1000, dtype=torch.float64, device=scene.world.device))
    return Then.LEAVE_OUT


def _dtype(fault: Fault, scene: Scene) -> Then:
    assert scene.sums is not None
    dist.all_reduce(scene.sums.float())
    return Then.LEAVE_OUT


def _compute(fault: Fault, scene: Scene) -> None:
    matrix, end = torch.ones(128, 128, device=scene.world.device), time.monotonic() + fault.seconds
    while time.monotonic() < end:
        torch.mm(matrix, matrix).sum().item()


def _wait(fault: Fault, scene: Scene) -> None:
    time.sleep(fault.seconds)


_heap: list[list[object]] = []


def _collect(fault: Fault, scene: Scene) -> None:
    while len(_heap) < int(fault.settings["objects"]):
        cycle: list[object] = []
        cycle.append(cycle)
        _heap.append(cycle)
    gc.collect()


def _stop(fault: Fault, scene: Scene) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _die(fault: Fault, scene: Scene) -> None:
    if fault.settings["how"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


def _swallow(fault: Fault, scene: Scene) -> Then | None:
    try:
        raise RuntimeError("a transient error of the kind that somebody once decided to ignore")
    except RuntimeError as error:
        print(f"rank {scene.world.rank}: ignoring {error}", flush=True)
        return Then.LEAVE_OUT


def _end(fault: Fault, scene: Scene) -> Then:
    return Then.END


def _bypass(fault: Fault, scene: Scene) -> None:
    model: Transformer = unwrapped(scene.parts[-1])
    block = list(model.layers.values())[-1]
    assert isinstance(block, Block)
    block.mlp.forward = lambda x: x * 0  # type: ignore[method-assign]


def _evaluate(fault: Fault, scene: Scene) -> None:
    """An evaluation as one writes it: harmless until only one rank does it."""
    loss = torch.zeros(1, device=scene.world.device)
    dist.all_reduce(loss)


def _lock_file(fault: Fault, scene: Scene) -> None:
    path = Path(tempfile.mkdtemp()) / "cache.lock"
    with path.open("w") as held, path.open("w") as wanted:
        fcntl.flock(held, fcntl.LOCK_EX)
        fcntl.flock(wanted, fcntl.LOCK_EX)


def _keep_interpreter(fault: Fault, scene: Scene) -> None:
    ctypes.PyDLL(None).sleep(int(min(fault.seconds, 2**31 - 1)))  # PyDLL calls without letting go of the lock


def _two_threads(fault: Fault, scene: Scene) -> None:
    """The second thread reduces 100 elements: on the faulty rank before, elsewhere after what the first one reduces."""
    second = threading.Thread(target=_reduce_metrics, args=(scene.world.device,), name="metrics", daemon=True)
    if scene.world.rank != fault.rank:
        dist.all_reduce(torch.zeros(10, device=scene.world.device))
        second.start()
        second.join()
    else:
        second.start()
        second.join()
        dist.all_reduce(torch.zeros(10, device=scene.world.device))


def _reduce_metrics(device: torch.device) -> None:
    dist.all_reduce(torch.zeros(100, device=device))


def _both_send(fault: Fault, scene: Scene) -> None:
    pair = (fault.rank, (fault.rank + 1) % scene.world.size)
    if scene.world.rank in pair:
        peer = pair[1 - pair.index(scene.world.rank)]
        message = torch.zeros(1 << 24, device=scene.world.device)
        dist.send(message, peer)
        dist.recv(message, peer)


def _write_forever(fault: Fault, scene: Scene) -> None:
    while True:
        time.sleep(1)


def _spoil(fault: Fault, scene: Scene) -> None:
    scene.parts[-1].register_forward_hook(lambda module, inputs, output: output * math.nan)


@torch.no_grad()
def _drift(fault: Fault, scene: Scene) -> None:
    for parameter in scene.parts[0].parameters():
        local(parameter).add_(float(fault.settings["size"]))


ACTS: dict[str, Act] = {
    "skip_collective": _skip,
    "extra_collective": _extra,
    "collective_order": _order,
    "collective_shape": _shape,
    "collective_dtype": _dtype,
    "slow_compute": _compute,
    "slow_data": _wait,
    "slow_gc": _collect,
    "slow_checkpoint": _wait,
    "slow_node": _compute,
    "stop": _stop,
    "die": _die,
    "swallow": _swallow,
    "early_exit": _end,
    "unused_parameter": _bypass,
    "rank0_evaluation": _evaluate,
    "file_lock": _lock_file,
    "gil": _keep_interpreter,
    "threads": _two_threads,
    "p2p_order": _both_send,
    "checkpoint_endless": _write_forever,
    "nan": _spoil,
    "diverge": _drift,
}
LASTING = {
    "slow_compute",
    "slow_data",
    "slow_gc",
    "slow_checkpoint",
    "slow_node",
    "unused_parameter",
    "checkpoint_endless",
}
EVERY_RANK = {"collective_order", "threads", "p2p_order"}  # the others have to play their part
