"""What a pipeline schedule costs before it runs: its bubble and the micro-batches that each rank has to keep. No torch.

A schedule is, per rank, the order of its steps on (stage, micro-batch). Playing that order against the dependencies
between stages, with a backward twice as long as a forward, gives both figures for every schedule alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

DURATION = {"F": 1, "B": 2, "I": 1, "W": 1}  # forward; whole backward, or its two halves: for inputs, for weights


class Step(NamedTuple):
    """One computation: `kind` of DURATION on a stage's micro-batch."""

    stage: int
    kind: str
    microbatch: int


@dataclass(frozen=True)
class Timeline:
    """A schedule played with unit costs."""

    length: int  # of the whole, in forwards of one stage
    busy: Mapping[int, int]  # rank → time spent computing
    peak: Mapping[int, int]  # rank → most (stage, micro-batch) pairs whose activations it held at once

    @property
    def bubble(self) -> float:
        """Share of all ranks' time that is spent waiting."""
        return 1 - sum(self.busy.values()) / (self.length * len(self.busy))


def bubble_formula(ranks: int, stages_per_rank: int, microbatches: int) -> float:
    """(K − 1) / (vM + K − 1), of GPipe, 1F1B and interleaved 1F1B (Megatron-LM, arXiv:2104.04473, §2.2)."""
    return (ranks - 1) / (stages_per_rank * microbatches + ranks - 1)


def gpipe(ranks: int, microbatches: int) -> dict[int, list[Step]]:
    """All forwards, then all backwards (arXiv:1811.06965)."""
    return {
        rank: [Step(rank, kind, microbatch) for kind in "FB" for microbatch in range(microbatches)]
        for rank in range(ranks)
    }


def one_forward_one_backward(ranks: int, microbatches: int) -> dict[int, list[Step]]:
    """As many forwards as stages follow, then a backward for each forward (PipeDream-Flush, arXiv:2006.09503)."""
    return {
        rank: _one_forward_one_backward(rank, min(microbatches, ranks - rank), microbatches) for rank in range(ranks)
    }


def _one_forward_one_backward(rank: int, ahead: int, microbatches: int) -> list[Step]:
    steps = [Step(rank, "F", microbatch) for microbatch in range(ahead)]
    for microbatch in range(microbatches):
        steps.append(Step(rank, "B", microbatch))
        if ahead + microbatch < microbatches:
            steps.append(Step(rank, "F", ahead + microbatch))
    return steps


def play(orders: Mapping[int, Sequence[Step]]) -> Timeline:
    """Run every rank's steps in their order, each as soon as what it needs is there; ValueError if that never is."""
    last = max(step.stage for steps in orders.values() for step in steps)
    done: dict[Step, int] = {}
    clock = dict.fromkeys(orders, 0)
    waiting = {rank: list(reversed(steps)) for rank, steps in orders.items()}
    while any(waiting.values()):
        moved = False
        for rank, steps in waiting.items():
            while steps and (ready := _ready_at(steps[-1], done, last)) is not None:
                step = steps.pop()
                clock[rank] = done[step] = max(clock[rank], ready) + DURATION[step.kind]
                moved = True
        if not moved:
            stuck = {rank: steps[-1] for rank, steps in waiting.items() if steps}
            raise ValueError(f"the schedule waits for itself at {stuck}")
    busy = {rank: sum(DURATION[step.kind] for step in steps) for rank, steps in orders.items()}
    return Timeline(max(clock.values()), busy, {rank: peak_stored(steps) for rank, steps in orders.items()})


def _ready_at(step: Step, done: Mapping[Step, int], last: int) -> int | None:
    """When all that `step` needs is done; None while something is not."""
    stage, kind, microbatch = step
    if kind == "F":
        needs = [] if stage == 0 else [("F", stage - 1)]
    elif kind == "W":
        needs = [("I", stage)]
    else:
        needs = [("F", stage)] if stage == last else [("F", stage), ("BI", stage + 1)]
    ends = [_end(done, kinds, at, microbatch) for kinds, at in needs]
    known = [end for end in ends if end is not None]
    return max(known, default=0) if len(known) == len(ends) else None


def _end(done: Mapping[Step, int], kinds: str, stage: int, microbatch: int) -> int | None:
    times = (done.get(Step(stage, kind, microbatch)) for kind in kinds)
    return next((time for time in times if time is not None), None)


def peak_stored(steps: Iterable[Step]) -> int:
    """Most pairs of stage and micro-batch between their forward and the end of their backward."""
    stored = peak = 0
    for step in steps:
        stored += {"F": 1, "I": 0, "B": -1, "W": -1}[step.kind]
        peak = max(peak, stored)
    return peak
