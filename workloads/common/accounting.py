"""What a step really sent and what a rank really keeps, beside what the table of states says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from workloads.common.costs import Case, Sizes
from workloads.common.counting import CollectiveCounter, Kind
from workloads.common.gradients import local
from workloads.common.states import PROFILES
from workloads.common.strategy import Job


@dataclass(frozen=True)
class Account:
    """One step as counted on this rank, and as the table has it."""

    counted: dict[Kind, Volume]
    kept: dict[str, int]
    case: Case


class Volume(NamedTuple):
    """Calls per step and rank, and bytes of whole tensors that they carry."""

    calls: float
    bytes: float


def case_of(job: Job, rows: tuple[str, ...]) -> Case:
    """This run as the table sees it."""
    profile = PROFILES["fsdp2" if job.options.dtype == "bfloat16" else "float32"]
    return Case(
        Sizes.of(job.config),
        job.mesh.degrees,
        rows,
        job.options.batch,
        job.options.seq,
        profile,
        micro_batches=job.options.accumulate,
        checkpointing=job.options.recompute,
        stage=job.mesh.index("pp"),
    )


def expected_volumes(case: Case) -> dict[Kind, Volume]:
    """The table's traffic, added up by what can be told apart when counting."""
    volumes: dict[Kind, Volume] = {}
    for traffic in case.traffic():
        kind = Kind(traffic.exchange.collective, traffic.members)
        before = volumes.get(kind, Volume(0, 0))
        volumes[kind] = Volume(before.calls + traffic.calls, before.bytes + traffic.bytes)
    return volumes


def counted_volumes(counter: CollectiveCounter) -> dict[Kind, Volume]:
    return {kind: Volume(counter.calls[kind], counter.bytes[kind]) for kind in counter.calls if kind.members > 1}


def kept_bytes(parts: Iterable[nn.Module], optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, int]:
    """Bytes of this rank's parameters, gradients and optimizer state as they are now, without Adam's step counters."""
    parameters = [parameter for part in parts for parameter in part.parameters()]
    states = [
        value
        for optimizer in optimizers
        for state in getattr(optimizer, "optim", optimizer).state.values()  # ZeRO-1 wraps the one of its own share
        for value in state.values()
        if isinstance(value, Tensor) and value.ndim
    ]
    return {
        "parameters": _bytes(parameters),
        "gradients": _bytes(parameter.grad for parameter in parameters if parameter.grad is not None),
        "optimizer": _bytes(states),
    }


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(piece.numel() * piece.element_size() for piece in map(local, tensors))


def report(account: Account) -> list[str]:
    """Lines that hold counts beside the table."""
    counted, expected = account.counted, expected_volumes(account.case)
    lines = ["per step and rank       counted: calls         bytes    table: calls         bytes"]
    for kind in sorted({*counted, *expected}):
        ours, theirs = counted.get(kind, Volume(0, 0)), expected.get(kind, Volume(0, 0))
        name = f"{kind.collective} over {kind.members}"
        lines.append(f"{name:<24}{ours.calls:>14,.0f}{ours.bytes:>14,.0f}{theirs.calls:>16,.0f}{theirs.bytes:>14,.0f}")
    memory = account.case.memory()
    lines += [f"{state:<24}{'':14}{size:>14,}{'':16}{memory[state]:>14,.0f}" for state, size in account.kept.items()]
    return lines
