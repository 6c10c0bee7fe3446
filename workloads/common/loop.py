"""The training loop that all workloads share."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType

import torch
from torch import distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from workloads.common import accounting, checkpoint, gradients, mesh, metrics, seeds
from workloads.common.counting import CollectiveCounter
from workloads.common.data import TrainingData, load_tokens
from workloads.common.mesh import Mesh, World, parse_mesh
from workloads.common.model import build_on_meta
from workloads.common.options import parse
from workloads.common.strategy import Job, Strategy
from workloads.common.weights import materialize


@dataclass(frozen=True)
class Totals:
    """What all ranks agree on at the end of a backward pass."""

    loss: float
    grad_norm: float
    stop: bool


@dataclass(frozen=True)
class Outcome:
    """Losses of the steps taken, and the last step's account if it was asked for."""

    losses: list[float]
    account: accounting.Account | None


@record
def run(strategy: Strategy) -> None:
    """A workload's main: train as the command line says. What a rank raises reaches torchrun's error file."""
    train(strategy)


def train(strategy: Strategy, argv: Sequence[str] | None = None) -> Outcome:
    """Train as `argv` (default: the command line) says.

    Raises SystemExit(2) for unknown flags, ValueError for a mesh, model, batch or data that do not fit each other.
    """
    options = parse(strategy.options, (sys.modules[type(strategy).__module__].__doc__ or "").strip(), argv)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # more threads would sum in another order
    if options.deterministic:
        seeds.make_deterministic()
    world = World.from_environment(options.device)
    with mesh.process_group(world, options.first_timeout), stop_signals() as stop:
        given = strategy.degrees(parse_mesh(options.mesh or os.environ.get("DLAUNCH_MESH", "")), world)
        if unknown := set(given) - set(strategy.axes):
            raise ValueError(f"this workload has no axis {', '.join(sorted(unknown))}, only {', '.join(strategy.axes)}")
        job = Job(options, world, Mesh(given, world.device.type), options.model())
        training = Training(strategy, job, stop)
        training.run()
        return Outcome(training.losses, training.account)


class Training:
    """One run: the model in parts, their optimizers, the data and the checkpoints."""

    def __init__(self, strategy: Strategy, job: Job, stop: list[int]) -> None:
        self.strategy, self.job, self._stop = strategy, job, stop
        options = job.options
        self.parts = strategy.parallelize(build_on_meta(job.config), job)
        materialize(self.parts, job.world.device, strategy.weights(job))
        self.optimizers = [strategy.optimizer(part, job) for part in self.parts]
        self.data = TrainingData(
            load_tokens(options.data, options.seed),
            options.batch,
            options.seq,
            options.seed,
            job.mesh.data_index,
            job.mesh.data_degree,
        )
        directory = options.checkpoint_dir or os.environ.get("DLAUNCH_CHECKPOINT_DIR", "")
        self.checkpoints = checkpoint.Checkpoints(directory, options.checkpoint_keep, options.checkpoint_async)
        self.losses: list[float] = []
        self._counter = CollectiveCounter()
        self.account: accounting.Account | None = None

    def run(self) -> None:
        options = self.job.options
        first = self._resume()
        self._say(f"{self.job.mesh.degrees} on {self.job.world.device.type}, {parameter_count(self.job):,} parameters")
        with metrics.Progress() as progress:
            batches = iter(self.data.loader(first, options.steps, options.workers))
            step = first
            for step in range(first, options.steps):
                stop = self._step(step, batches, progress)
                if step == first:
                    mesh.set_timeout(options.timeout)
                if stop or (options.checkpoint_every and (step + 1) % options.checkpoint_every == 0):
                    self._save(step + 1)
                if stop:
                    self._say(f"stopped in order after step {step + 1}")
                    break
            else:
                self._save(options.steps)
        self.checkpoints.finish()
        self.strategy.finish(self.parts, self.job)

    def _step(self, step: int, batches: Iterator[object], progress: metrics.Progress) -> bool:
        """One optimizer step; returns True if any rank was asked to stop."""
        job, began = self.job, time.perf_counter()
        batch = self.strategy.local_batch(next(batches).to(job.world.device), job)  # type: ignore[attr-defined]
        data_s = time.perf_counter() - began
        seeds.seed_step(job.options.seed, step, job.mesh.data_index, job.mesh.index("pp"))
        with self._counting(step) as counted:
            loss = self.strategy.forward_backward(self.parts, batch, job)
            pieces = gradients.settle(parameter for part in self.parts for parameter in part.parameters())
        totals = self._agree(loss, pieces)
        with self._counting(step) as counted:
            for optimizer in self.optimizers:
                optimizer.step()
        if counted:
            self.account = accounting.Account(
                accounting.counted_volumes(counted),
                accounting.kept_bytes(self.parts, self.optimizers),
                accounting.case_of(job, self.strategy.rows(job)),
            )
            self._say("\n".join(accounting.report(self.account)))
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self._report(step, totals, time.perf_counter() - began, data_s, progress)
        return totals.stop

    def _counting(self, step: int) -> AbstractContextManager[CollectiveCounter | None]:
        """Counts collectives in the last step, if asked."""
        return self._counter if self.job.options.count and step + 1 == self.job.options.steps else nullcontext()

    def _agree(self, loss: torch.Tensor | None, pieces: list[torch.Tensor]) -> Totals:
        """Sum loss, squared gradient norm and the wish to stop over all ranks in one all-reduce; check and clip.

        Raises FloatingPointError before the optimizer can spoil the parameters.
        """
        device, holders = self.job.world.device, self.job.holders
        sums = torch.zeros(3, dtype=torch.float64, device=device)
        sums[0] = 0.0 if loss is None else loss.double() / holders
        sums[1] = gradients.square_share(pieces, holders)
        sums[2] = len(self._stop)
        dist.all_reduce(sums)
        mean_loss, square, stop = sums.tolist()
        if not math.isfinite(mean_loss + square):
            raise FloatingPointError(f"loss {mean_loss}, squared gradient norm {square}")
        gradients.clip(pieces, math.sqrt(square), self.job.options.clip)
        return Totals(mean_loss, math.sqrt(square), stop > 0)

    def _report(self, step: int, totals: Totals, step_s: float, data_s: float, progress: metrics.Progress) -> None:
        options = self.job.options
        tokens = options.batch * options.seq
        self.losses.append(totals.loss)
        self._say(
            f"step {step + 1}/{options.steps}  loss {totals.loss:.6f}  tokens/s {tokens / step_s:,.0f}  "
            f"grad norm {totals.grad_norm:.4f}"
        )
        progress.write(
            step=step + 1,
            step_s=round(step_s, 6),
            data_s=round(data_s, 6),
            loss=totals.loss,
            grad_norm=totals.grad_norm,
            tokens=tokens,
            tokens_per_s=round(tokens / step_s, 1),
            memory_bytes=metrics.memory_bytes(self.job.world.device),
        )

    def _resume(self) -> int:
        """Load the newest complete checkpoint; returns the number of steps already done."""
        path = self.checkpoints.latest()
        if path is None:
            return 0
        step = checkpoint.restore(self.parts, self.optimizers, path)
        self._say(f"resumed after step {step} from {path}")
        return step

    def _save(self, step: int) -> None:
        if self.checkpoints.root:
            self.checkpoints.save(checkpoint.training_state(self.parts, self.optimizers, step))

    def _say(self, text: str) -> None:
        if self.job.world.rank == 0:
            print(text, flush=True)


def parameter_count(job: Job) -> int:
    """Parameters of the whole model, independent of the mesh."""
    return sum(parameter.numel() for parameter in build_on_meta(job.config).parameters())


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """SIGTERM and SIGUSR2 only leave a note here: the step is finished first."""
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGUSR2)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
