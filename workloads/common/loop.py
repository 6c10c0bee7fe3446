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
from pathlib import Path
from types import FrameType

import torch
from torch import distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from workloads.common import (
    accounting,
    checkpoint,
    gradients,
    hugging_face,
    instruments,
    mesh,
    metrics,
    replicas,
    seeds,
)
from workloads.common.counting import CollectiveCounter
from workloads.common.data import Batch, TrainingData, load_tokens
from workloads.common.faults import parse_fault, require_sense
from workloads.common.injections import Faults, Scene, Then
from workloads.common.mesh import Mesh, World, parse_mesh
from workloads.common.model import build_on_meta
from workloads.common.options import parse
from workloads.common.precision import kept
from workloads.common.strategy import Job, Strategy
from workloads.common.weights import materialize

TOLD_SAMPLES = 16  # of a step, in its record: by these it shows when ranks read the same, or never another order


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
    fault = parse_fault(options.fault)
    require_sense(fault, strategy.name, "nccl" if world.device.type == "cuda" else "gloo")
    faults = Faults(fault, world)
    with mesh.process_group(world, options.first_timeout), stop_signals() as stop:
        faults.device()
        given = strategy.degrees(parse_mesh(options.mesh or os.environ.get("DLAUNCH_MESH", "")), world)
        if unknown := set(given) - set(strategy.axes):
            raise ValueError(f"this workload has no axis {', '.join(sorted(unknown))}, only {', '.join(strategy.axes)}")
        job = Job(options, world, Mesh(given, world.device.type, faults.column_major), options.model())
        training = Training(strategy, job, faults, stop)
        with instruments.memory_snapshot(world.device, job.output / f"memory-rank-{world.rank}.pickle"):
            training.run()
        return Outcome(training.losses, training.account)


class Training:
    """One run: the model in parts, their optimizers, the data and the checkpoints."""

    def __init__(self, strategy: Strategy, job: Job, faults: Faults, stop: list[int]) -> None:
        self.strategy, self.job, self._faults, self._stop = strategy, job, faults, stop
        options = job.options
        self.parts = strategy.parallelize(build_on_meta(job.config).to(kept(options.dtype)), job)
        materialize(self.parts, job.world.device, strategy.weights(job))
        faults.model(self.parts)
        self.optimizers = [strategy.optimizer(part, job) for part in self.parts]
        tokens = load_tokens(options.data, options.seed)
        place = (job.mesh.data_index, job.mesh.data_degree)
        self.data = faults.data(TrainingData(tokens, options.batch, options.seq, options.seed, *place))
        directory = options.checkpoint_dir or os.environ.get("DLAUNCH_CHECKPOINT_DIR", "")
        self.checkpoints = checkpoint.Checkpoints(directory, options.checkpoint_keep, options.checkpoint_async)
        self.losses: list[float] = []
        self.account: accounting.Account | None = None
        self._counter = CollectiveCounter()
        self._scene = Scene(job.world, self.parts)
        self._throughput = metrics.Throughput.of(job)

    def run(self) -> None:
        options = self.job.options
        first = self._resume()
        self._say(f"{self.job.mesh.degrees} on {self.job.world.device}, {self._throughput.parameters:,} parameters")
        collection = instruments.GarbageCollection(options.gc_every)
        profile = instruments.Profile(options.profile, self.job.output, self.job.world.rank)
        batches = iter(self.data.loader(first, options.steps, self._faults.workers(options.workers)))
        with metrics.Progress() as progress:
            for step in range(first, options.steps):
                profile.step(step + 1)
                collection.step(step + 1)
                if self._faults.at("data", step, self._scene) is Then.END:
                    break
                stop = self._step(step, batches, progress)
                if step == first:
                    mesh.set_timeout(options.timeout)
                self._after(step + 1, stop)
                if stop:
                    self._say(f"stopped in order after step {step + 1}")
                    break
        profile.close()
        collection.close()
        self.checkpoints.finish()
        self._export()
        self.strategy.finish(self.parts, self.job)

    def _step(self, step: int, batches: Iterator[Batch], progress: metrics.Progress) -> bool:
        """One optimizer step; returns True if any rank was asked to stop."""
        job, began = self.job, time.perf_counter()
        batch = self.strategy.local_batch(next(batches).to(job.world.device), job)
        data_s = time.perf_counter() - began
        seed = self._faults.seed(job.options.seed, step)
        seeds.seed_step(seed, step, job.mesh.data_index, job.mesh.index("pp"))
        with self._counting(step):
            left_out = self._faults.at("forward", step, self._scene) is Then.LEAVE_OUT
            loss = None if left_out else self.strategy.forward_backward(self.parts, batch, job)
            pieces = gradients.settle(parameter for part in self.parts for parameter in part.parameters())
        totals = self._agree(step, loss, pieces)
        with self._counting(step) as counter:
            for optimizer in self.optimizers:
                optimizer.step()
        if counter:
            self._settle_account(counter)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.losses.append(totals.loss)
        step_s = time.perf_counter() - began
        self._say(self._throughput.line(step + 1, totals, step_s))
        progress.write(
            step=step + 1,
            step_s=round(step_s, 6),
            data_s=round(data_s, 6),
            loss=totals.loss,
            grad_norm=totals.grad_norm,
            samples=self.data.samples(step)[:TOLD_SAMPLES],
            seed=seed,
            **self._throughput.fields(step_s),
        )
        return totals.stop

    def _settle_account(self, counter: CollectiveCounter) -> None:
        case = accounting.case_of(self.job, self.strategy.rows(self.job))
        kept = accounting.kept_bytes(self.parts, self.optimizers)
        self.account = accounting.Account(accounting.counted_volumes(counter), kept, case)
        self._say("\n".join(accounting.report(self.account)))

    def _after(self, done: int, stop: bool) -> None:
        """What is due after `done` steps: a checkpoint, a comparison of replicas."""
        every, compare = self.job.options.checkpoint_every, self.job.options.compare_replicas
        if self.checkpoints.root and (stop or done == self.job.options.steps or (every and done % every == 0)):
            self._faults.at("checkpoint", done - 1, self._scene)
            self.checkpoints.save(checkpoint.training_state(self.parts, self.optimizers, done))
        if compare and done % compare == 0 and (different := replicas.divergent(self.parts)):
            piece, ranks = next(iter(different.items()))
            raise RuntimeError(
                f"replicas differ after step {done}: ranks {ranks} hold other bits of {piece} than the rest "
                f"({len(different)} pieces differ)"
            )

    def _counting(self, step: int) -> AbstractContextManager[CollectiveCounter | None]:
        """Counts collectives in the last step, if asked."""
        return self._counter if self.job.options.count and step + 1 == self.job.options.steps else nullcontext()

    def _agree(self, step: int, loss: torch.Tensor | None, pieces: list[torch.Tensor]) -> metrics.Totals:
        """Sum loss, squared gradient norm and the wish to stop over all ranks in one all-reduce; check and clip.

        Raises FloatingPointError before the optimizer can spoil the parameters; a rank whose own loss is not finite
        says so.
        """
        holders = self.job.holders
        sums = torch.zeros(3, dtype=torch.float64, device=self.job.world.device)
        sums[0] = 0.0 if loss is None else loss.double() / holders
        sums[1] = gradients.square_share(pieces, holders)
        sums[2] = len(self._stop)
        self._scene.sums = sums
        if self._faults.at("reduce", step, self._scene) is not Then.LEAVE_OUT:
            dist.all_reduce(sums)
        mean_loss, square, stop = sums.tolist()
        if not math.isfinite(mean_loss + square):
            own = "unknown" if loss is None else f"{float(loss)}"
            raise FloatingPointError(f"step {step + 1}: loss {mean_loss}, norm² {square}; loss of this rank {own}")
        gradients.clip(pieces, math.sqrt(square), self.job.options.clip)
        return metrics.Totals(mean_loss, math.sqrt(square), stop > 0)

    def _resume(self) -> int:
        """Load the newest complete checkpoint; returns the number of steps already done."""
        path = self.checkpoints.latest()
        if path is None:
            return 0
        step = checkpoint.restore(self.parts, self.optimizers, path)
        self._say(f"resumed after step {step} from {path}")
        return step

    def _export(self) -> None:
        if self.job.options.export:
            first = self.job.mesh.index("dp_replicate", "dp_shard", "cp", "tp") == 0
            weights = checkpoint.whole_weights(self.parts, keep=first)
            if self.job.world.rank == 0:
                hugging_face.write(Path(self.job.options.export), weights, self.job.config)

    def _say(self, text: str) -> None:
        if self.job.world.rank == 0:
            print(text, flush=True)


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
