"""Where this process stands: its ranks and device from the environment, and the mesh of named axes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import torch
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from workloads.common.states import AXES

DATA_AXES = ("dp_replicate", "dp_shard")  # ranks that differ here read different sequences; all others read the same


@dataclass(frozen=True)
class World:
    """The process's place among all, as torchrun's variables tell it, and its device."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    device: torch.device

    @classmethod
    def from_environment(cls, device: str) -> World:
        rank, size, local_rank, local_size = (
            int(os.environ.get(name, default))
            for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1))
        )
        cuda = device == "cuda" or (device == "auto" and torch.cuda.device_count() >= local_size)
        return cls(
            rank, size, local_rank, local_size, torch.device("cuda", local_rank) if cuda else torch.device("cpu")
        )

    @property
    def nodes(self) -> int:
        return max(1, self.size // self.local_size)


@contextmanager
def process_group(world: World, timeout: float) -> Iterator[None]:
    """The default process group for the length of the block (also for one process without torchrun).

    A program that has one already keeps it: it is used, and left as it is.
    """
    if dist.is_initialized():
        set_timeout(timeout)
        yield
        return
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0"), ("RANK", "0"), ("WORLD_SIZE", "1")):
        os.environ.setdefault(name, value)
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
    backend = "cpu:gloo,cuda:nccl" if world.device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    try:
        yield
    finally:
        dist.destroy_process_group()


def set_timeout(seconds: float) -> None:
    """Give every existing process group another timeout."""
    from torch.distributed import distributed_c10d as c10d

    for group in list(c10d._world.pg_map):
        c10d._set_pg_timeout(timedelta(seconds=seconds), group)


def parse_mesh(text: str) -> dict[str, int]:
    """`dp_replicate=4,dp_shard=2` -> degrees, outermost first; raises ValueError naming the part that is wrong."""
    degrees: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        axis, _, degree = part.partition("=")
        if axis not in (*AXES, "ep") or not degree.isascii() or not degree.isdigit() or int(degree) < 1:
            raise ValueError(f"mesh: {part!r} is not AXIS=DEGREE with an axis of {', '.join(AXES)}, ep")
        degrees[axis] = int(degree)
    return degrees


@dataclass(frozen=True)
class Mesh:
    """The grid of all ranks, row-major, outermost axis first. An axis that is not given has degree 1 and no group.

    `ep` adds no ranks: it is a second view of the dp_shard × cp × tp block and divides it.
    """

    degrees: Mapping[str, int]
    device_type: str
    column_major: bool = False  # a mistake that a drill makes: the innermost axis strides over all others

    def __post_init__(self) -> None:
        size = dist.get_world_size()
        if math.prod(self.shape) != size:
            text = ",".join(f"{axis}={degree}" for axis, degree in self.degrees.items())
            raise ValueError(f"the mesh {text} has {math.prod(self.shape)} ranks, but the world has {size}")
        if self._inner % self.degree("ep"):
            raise ValueError(f"ep={self.degree('ep')} does not divide dp_shard × cp × tp = {self._inner}")

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for axis in self.degrees if axis != "ep")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.degrees[axis] for axis in self.axes)

    @property
    def _inner(self) -> int:
        return self.size("dp_shard", "cp", "tp")

    def degree(self, axis: str) -> int:
        return self.degrees.get(axis, 1)

    def size(self, *axes: str) -> int:
        return math.prod(self.degree(axis) for axis in axes)

    @cached_property
    def dense(self) -> DeviceMesh:
        """The view of everything but the experts: one axis per given axis."""
        return self._laid_out(self.shape, self.axes)

    def _laid_out(self, shape: tuple[int, ...], axes: tuple[str, ...]) -> DeviceMesh:
        if not self.column_major:
            return init_device_mesh(self.device_type, shape, mesh_dim_names=axes)
        ranks = torch.arange(math.prod(self.shape)).view(self.shape[::-1]).permute(*reversed(range(len(self.shape))))
        return DeviceMesh(self.device_type, ranks.reshape(shape), mesh_dim_names=axes)

    @cached_property
    def expert(self) -> DeviceMesh:
        """The view of the experts: (pp, dp_replicate, ep_shard, ep), where ep_shard × ep = dp_shard × cp × tp."""
        ep = self.degree("ep")
        shape = (self.degree("pp"), self.degree("dp_replicate"), self._inner // ep, ep)
        return self._laid_out(shape, ("pp", "dp_replicate", "ep_shard", "ep"))

    def view(self, *axes: str) -> DeviceMesh:
        """The sub-mesh of those of `axes` that were given (at least one)."""
        return self.dense[tuple(axis for axis in axes if axis in self.axes)]

    @cached_property
    def sharded(self) -> DeviceMesh:
        """The view over which FSDP shards dense parameters: dp_shard × cp as one axis, behind dp_replicate if given.

        Ranks along cp hold other tokens of the same parameters, as data ranks do. Raises ValueError without an axis.
        """
        shards = tuple(axis for axis in ("dp_shard", "cp") if axis in self.axes)
        if not shards:
            raise ValueError(f"FSDP has no axis in the mesh {','.join(self.axes)}: add dp_shard=1")
        flat = self.dense[shards]._flatten("dp_shard_cp") if len(shards) > 1 else self.dense[shards]
        name = "dp_shard_cp" if len(shards) > 1 else shards[0]
        return self.dense["dp_replicate", name] if "dp_replicate" in self.axes else flat

    @cached_property
    def tokens(self) -> dist.ProcessGroup | None:
        """The ranks with other tokens for a layer: dp_replicate × dp_shard × cp × tp (by sequence); None if alone."""
        axes = tuple(axis for axis in (*DATA_AXES, "cp", "tp") if axis in self.axes)
        if len(axes) > 1:
            return self.dense[axes]._flatten("tokens").get_group()
        return self.dense[axes].get_group() if axes else None

    def index(self, *axes: str) -> int:
        """This rank's row-major position within `axes`: 0 … size(*axes) − 1."""
        position = dict(zip(self.axes, self.dense.get_coordinate() or (), strict=True))
        index = 0
        for axis in axes:
            index = index * self.degree(axis) + position.get(axis, 0)
        return index

    @property
    def data_degree(self) -> int:
        return self.size(*DATA_AXES)

    @property
    def data_index(self) -> int:
        return self.index(*DATA_AXES)

    def __str__(self) -> str:
        return "/".join(f"{axis}{self.index(axis)}" for axis in self.axes)
