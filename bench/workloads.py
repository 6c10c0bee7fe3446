"""Our training step against a minimal hand-written loop over the same model, in the same run.

    python -m bench.workloads                   FSDP and DDP on two ranks, and one process for the scaling
    python -m bench.workloads --ranks 4 --preset 38M --json FILE

Both loops run on the same ranks in turns, so that whatever else the machine does meets both; the figure of each is the
median time from one step to the next, by the clock and of the rank's CPUs, which other load moves less. Ours includes
all that it does in a step: data, checks, gradient norm, progress record, printing. Of these the progress record, and of
torch the flight recorder, are measured by themselves too, as shares of a step of FSDP.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.nn.functional as F
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.workloads.ranks import new_store, run_ranks
from workloads.common.config import preset
from workloads.common.costs import Case, Sizes
from workloads.common.data import TrainingData, load_tokens
from workloads.common.loop import train
from workloads.common.metrics import Progress, Throughput
from workloads.common.model import Transformer
from workloads.common.states import PROFILES
from workloads.common.strategy import Strategy
from workloads.ddp import DDP
from workloads.fsdp import FSDP

OURS: dict[str, tuple[type[Strategy], str]] = {"fsdp": (FSDP, "dp_shard"), "ddp": (DDP, "dp_replicate")}
WARM_UP = 3  # steps at the start of every turn that are not counted


@dataclass(frozen=True)
class Setting:
    """What both loops train."""

    preset: str
    batch: int
    seq: int
    steps: int
    turns: int


@dataclass(frozen=True)
class Comparison:
    """Median seconds of a step of rank 0 over all turns: by the clock, and of its CPUs."""

    strategy: str
    ranks: int
    ours_s: float
    minimal_s: float
    ours_cpu_s: float
    minimal_cpu_s: float
    tokens_per_s: float

    @property
    def overhead(self) -> float:
        """How much longer our step takes, as a share of the minimal one."""
        return self.ours_s / self.minimal_s - 1

    @property
    def cpu_overhead(self) -> float:
        return self.ours_cpu_s / self.minimal_cpu_s - 1


class Moment(NamedTuple):
    """Seconds on the clock and of CPU."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.perf_counter(), time.process_time())


def our_steps(strategy: str, setting: Setting, world_size: int) -> list[Moment]:
    """The start of every step of one run of ours, as its strategy sees it."""
    kind, axis = OURS[strategy]
    moments: list[Moment] = []

    class Timed(kind):  # type: ignore[valid-type, misc]  # a base chosen at run time
        def forward_backward(self, *args: Any) -> Any:
            moments.append(Moment.now())
            return super().forward_backward(*args)

    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(Path(os.devnull).open("w")):
        os.environ["DLAUNCH_PROGRESS"] = f"{directory}/progress.jsonl"
        sizes = ("--preset", setting.preset, "--batch", str(setting.batch), "--seq", str(setting.seq))
        train(Timed(), [*sizes, "--steps", str(setting.steps), "--mesh", f"{axis}={world_size}", "--data", "synthetic"])
    return moments


def minimal_steps(strategy: str, setting: Setting, world_size: int) -> list[Moment]:
    """The start of every step of the loop that one writes first."""
    with _process_group():
        model = _wrapped(Transformer(preset(setting.preset)), strategy, world_size)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
        data = TrainingData(load_tokens("synthetic", 0), setting.batch, setting.seq, 0, dist.get_rank(), world_size)
        moments = []
        for step in range(setting.steps):
            moments.append(Moment.now())
            batch = data[step]
            loss = F.cross_entropy(model(batch.inputs).flatten(0, 1), batch.targets.flatten())
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
    return moments


def _wrapped(model: Transformer, strategy: str, world_size: int) -> nn.Module:
    if strategy == "ddp":
        return DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (world_size,))
    for block in model.layers.values():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


@contextlib.contextmanager
def _process_group() -> Iterator[None]:
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    try:
        yield
    finally:
        dist.destroy_process_group()


def alternate(strategy: str, setting: Setting, ports: list[int]) -> dict[str, list[Moment]]:
    """On one rank: both loops in turns, the order changing from turn to turn; each run has a store of its own."""
    world_size = int(os.environ["WORLD_SIZE"])
    times: dict[str, list[Moment]] = {"ours": [], "minimal": []}
    loops = {"ours": our_steps, "minimal": minimal_steps}
    for turn in range(setting.turns):
        for name in sorted(loops, reverse=bool(turn % 2)):
            os.environ["MASTER_PORT"] = str(ports.pop())
            moments = loops[name](strategy, setting, world_size)[WARM_UP:]
            times[name] += [Moment(b.wall - a.wall, b.cpu - a.cpu) for a, b in pairwise(moments)]
    return times


def compare(strategy: str, ranks: int, setting: Setting) -> Comparison:
    stores = [new_store() for _ in range(2 * setting.turns)]
    times = run_ranks(alternate, ranks, strategy, setting, [store.port for store in stores], deadline=1200.0)[0]
    ours, minimal = (Moment(*map(statistics.median, zip(*times[name], strict=True))) for name in ("ours", "minimal"))
    tokens_per_s = setting.batch * setting.seq / ours.wall
    return Comparison(strategy, ranks, ours.wall, minimal.wall, ours.cpu, minimal.cpu, tokens_per_s)


@dataclass(frozen=True)
class Instrument:
    """What one use of an instrument costs, and how often a step uses it."""

    what: str
    cost_s: float
    per_step: float
    share: float


def instruments(fsdp: Comparison, setting: Setting) -> list[Instrument]:
    """The progress record and the flight recorder beside our step of FSDP."""
    sizes = Sizes.of(preset(setting.preset))
    case = Case(sizes, {"dp_shard": fsdp.ranks}, ("zero3",), setting.batch, setting.seq, PROFILES["float32"])
    collectives = 1 + sum(traffic.calls for traffic in case.traffic())  # and the one of loss and norm
    recorded, bare = (run_ranks(collective_cpu_s, 2, entries)[0] for entries in (2000, 0))
    costs = (("progress record", record_s(), 1.0), ("flight recorder", recorded - bare, collectives))
    return [Instrument(what, cost, times, cost * times / fsdp.ours_s) for what, cost, times in costs]


def record_s(repeats: int = 2000) -> float:
    """Seconds that it takes to write one progress record."""
    throughput = Throughput(repeats, 2048, 1_000_000, 1e9, torch.device("cpu"), 1)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["DLAUNCH_PROGRESS"] = f"{directory}/progress.jsonl"
        with Progress() as progress:
            began = time.perf_counter()
            for step in range(repeats):
                progress.write(step=step, step_s=0.05, data_s=0.001, loss=2.5, seed=0, **throughput.fields(0.05))
            return (time.perf_counter() - began) / repeats


def collective_cpu_s(entries: int, repeats: int = 5000) -> float:
    """CPU seconds of one small all-reduce with a flight recorder of so many entries; 0 is none."""
    os.environ["TORCH_FR_BUFFER_SIZE"] = str(entries)
    times = []
    with _process_group():
        for _ in range(repeats):
            began = time.thread_time()
            dist.all_reduce(torch.zeros(3))
            times.append(time.thread_time() - began)
    return statistics.median(times)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--preset", default="debug")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--steps", type=int, default=25, help="per turn")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    options = parser.parse_args(argv)
    setting = Setting(options.preset, options.batch, options.seq, options.steps, options.turns)
    print(f"{'':6}{'ranks':>6}{'ours':>12}{'minimal':>12}{'overhead':>10}{'of CPU':>8}{'tokens/s':>12}{'scaling':>9}")
    results: list[Comparison] = []
    for strategy in OURS:
        one = compare(strategy, 1, setting)
        for result in (one, compare(strategy, options.ranks, setting)):
            results.append(result)
            print(row(result, one), flush=True)
    costs = instruments(results[1], setting)
    for cost in costs:
        print(f"{cost.what}: {cost.cost_s * 1e6:.1f} µs, {cost.per_step:.0f} a step: {cost.share:.2%} of it")
    if options.json:
        found = [
            {**asdict(result), "overhead": result.overhead, "cpu_overhead": result.cpu_overhead} for result in results
        ]
        document = {"setting": asdict(setting), "results": found, "instruments": [asdict(cost) for cost in costs]}
        options.json.write_text(json.dumps(document))


def row(result: Comparison, one: Comparison) -> str:
    """A line of the table; `one` is the same strategy on one rank."""
    times = f"{result.ours_s * 1e3:>9.1f} ms{result.minimal_s * 1e3:>9.1f} ms"
    figures = f"{result.overhead:>10.1%}{result.cpu_overhead:>8.1%}{result.tokens_per_s:>12,.0f}"
    scaling = one.ours_s / result.ours_s
    return f"{result.strategy:6}{result.ranks:>6}{times}{figures}{scaling:>8.2f}×"


if __name__ == "__main__":
    main()
