"""Pipelines: which layers a stage has, which stages a rank has, and the schedule that torch runs over them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, SplitPoint, pipeline
from torch.distributed.pipelining.schedules import get_schedule_class

from workloads.common.model import Transformer
from workloads.common.pipeline_theory import Step, Timeline, gpipe, one_forward_one_backward, play

SINGLE, LOOP, V = "one stage per rank", "stage s on rank s mod K", "there and back: the last stage is on the first rank"
SCHEDULES: dict[str, str] = {
    "GPipe": SINGLE,
    "1F1B": SINGLE,
    "Interleaved1F1B": LOOP,
    "LoopedBFS": LOOP,
    "InterleavedZeroBubble": LOOP,
    "ZBVZeroBubble": V,
    "DualPipeV": V,
}


@dataclass(frozen=True)
class Pipeline:
    """The shape of a pipeline over K ranks: its schedule, stages per rank and micro-batches per step."""

    schedule: str
    ranks: int
    stages_per_rank: int
    microbatches: int

    def __post_init__(self) -> None:
        style = SCHEDULES[self.schedule]
        if self.stages_per_rank not in {SINGLE: (1,), V: (2,)}.get(style, (self.stages_per_rank,)):
            raise ValueError(f"{self.schedule} has {style}, not {self.stages_per_rank} stages per rank")

    @property
    def stages(self) -> int:
        return self.ranks * self.stages_per_rank

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages of one rank, in the order of the model."""
        if SCHEDULES[self.schedule] == V:
            return rank, self.stages - 1 - rank
        return tuple(range(rank, self.stages, self.ranks))


def split_layers(layers: int, stages: int, lighter: int) -> list[range]:
    """Contiguous layers for each stage, as even as they come, counting embedding and output as `lighter` layers each.

    Raises ValueError if a stage would have nothing to do.
    """
    load = layers + 2 * lighter
    if stages == 1:
        return [range(layers)]
    edges = [round(load * stage / stages) - lighter for stage in range(stages + 1)]
    edges = [min(max(edge, 0), layers) for edge in edges]
    split = [range(*pair) for pair in pairwise(edges)]
    if not all(split[1:-1]):
        raise ValueError(f"{layers} layers are too few for {stages} stages of which the ends are {lighter} lighter")
    return split


def cut(model: Transformer, layers: range, first: bool, last: bool) -> Transformer:
    """The stage of `model` (still on the meta device) with these layers, under their names in the whole model."""
    if model.config.tied:
        raise ValueError("tied embeddings are on two stages of a pipeline: choose a preset without them")
    stage = copy.deepcopy(model)
    for index in list(stage.layers):
        if int(index) not in layers:
            del stage.layers[index]
    if not first:
        stage.embedding = None
    if not last:
        stage.norm = stage.output = None
    return stage


class Stage(PipelineStage):
    """Torch's stage. The trial run by which torch learns its shapes is no training: no dropout, no token is counted."""

    def _compute_outputs(self, *args: Tensor, module: nn.Module, **kwargs: Any) -> Any:
        module.eval()
        try:
            return super()._compute_outputs(*args, module=module, **kwargs)
        finally:
            module.train()


def stages_by_hand(
    parts: Mapping[int, nn.Module], shape: Pipeline, device: torch.device, group: dist.ProcessGroup
) -> list[Any]:
    """One torch stage for each of this rank's parts; shapes are inferred from the first micro-batch."""
    return [Stage(part, index, shape.stages, device, group=group) for index, part in parts.items()]


def stages_by_tracing(
    model: Transformer, split: list[range], microbatch: Tensor, shape: Pipeline, group: dist.ProcessGroup, rank: int
) -> list[Any]:
    """The stages of this rank, cut out of the traced `model`, of which tracing needs every parameter allocated."""
    before = {f"layers.{layers.start}": SplitPoint.BEGINNING for layers in split[1:]}
    pipe = pipeline(model, (microbatch,), split_spec=before)
    return [pipe.build_stage(index, microbatch.device, group) for index in shape.stages_of(rank)]


def build_schedule(stages: list[Any], shape: Pipeline, loss: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """The torch schedule over this rank's stages; the gradients it leaves are means over micro-batches."""
    kind: Any = get_schedule_class(shape.schedule)
    own = stages[0] if SCHEDULES[shape.schedule] == SINGLE else stages
    return kind(own, n_microbatches=shape.microbatches, loss_fn=loss)


def expected_timeline(schedule: Any, shape: Pipeline) -> Timeline:
    """What the order that `schedule` will run costs in theory."""
    if SCHEDULES[shape.schedule] == SINGLE:  # the order that torch tells for these is not the one that it runs
        order = gpipe if shape.schedule == "GPipe" else one_forward_one_backward
        return play(order(shape.ranks, shape.microbatches))
    return play({rank: list(_steps(order)) for rank, order in schedule.pipeline_order.items()})


def _steps(order: Any) -> Iterator[Step]:
    for action in order:
        if action is None:  # a pause
            continue
        if action.sub_actions:
            yield from _steps(action.sub_actions)
        elif action.is_compute_op:
            yield Step(action.stage_index, action.computation_type.value, action.microbatch_index)


@dataclass
class Meter:
    """What a rank's stages really did: time spent computing, and how many micro-batches they kept at once."""

    device: torch.device
    busy_s: float = 0.0
    wall_s: float = 0.0
    stored: int = 0
    peak: int = 0
    _events: list[tuple[Any, Any]] = field(default_factory=list)

    def watch(self, stage: Any) -> None:
        """Meter the three computations of a torch pipeline stage."""
        forward, backward, weight = (
            stage.forward_one_chunk,
            stage.backward_one_chunk,
            stage.backward_weight_one_chunk,
        )

        def metered_forward(*args: Any, **kwargs: Any) -> Any:
            with self._computing(+1):
                return forward(*args, **kwargs)

        def metered_backward(*args: Any, full_backward: bool = True, **kwargs: Any) -> Any:
            with self._computing(-1 if full_backward else 0):
                return backward(*args, full_backward=full_backward, **kwargs)

        def metered_weight(*args: Any, **kwargs: Any) -> Any:
            with self._computing(-1):
                return weight(*args, **kwargs)

        stage.forward_one_chunk = metered_forward
        stage.backward_one_chunk = metered_backward
        stage.backward_weight_one_chunk = metered_weight

    @contextmanager
    def _computing(self, stored: int) -> Iterator[None]:
        self.stored += max(stored, 0)
        self.peak = max(self.peak, self.stored)
        began = self._mark()
        yield
        self._events.append((began, self._mark()))
        self.stored += min(stored, 0)

    def _mark(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around one step of the schedule."""
        self._events.clear()
        began = self._mark()
        yield
        ended = self._mark()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.wall_s += self._between(began, ended)
        self.busy_s += sum(self._between(*pair) for pair in self._events)

    def _between(self, began: Any, ended: Any) -> float:
        return began.elapsed_time(ended) / 1e3 if self.device.type == "cuda" else ended - began  # type: ignore[no-any-return]
