"""Steps of the bundled workload as `dlaunch plan` predicts them, from measurements of this machine, beside real ones.

    python -m bench.plan [--preset 38M] [--layers 4] [--batch 8] [--seq 128] [--steps 8] [--rounds 3] [--json FILE]

Two ranks. What the prediction takes: α and β of `dlaunch bench comm` over two ranks, and the operations per second of
one rank, from a run on one rank with a second such run beside it, as there is in the predicted ones. The aim: within
20 % for every mesh. A rank has one core here and gloo needs it too, so nothing overlaps: it is the upper end of the
band that must meet the clock. All is measured once in every round, and the median of the rounds counts, on both
sides: the clock of the machine goes up and down in minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from launcher.common.paths import JobPaths
from launcher.inventory import load_inventory
from launcher.placement.cluster import Network
from launcher.placement.measured import Measured, kept_measures
from launcher.planner.cluster import DeviceType, probed_nodes, with_measured
from launcher.planner.model import Model
from launcher.planner.question import Question, case_of
from launcher.planner.time import StepTime, step_time
from launcher.spec import MeshSpec
from launcher.topology import HostTopology
from workloads.common.config import ModelConfig, preset
from workloads.common.costs import Sizes
from workloads.common.flops import flops_per_token

RANKS = 2
WARM_UP = 2  # steps that are not counted
LIMIT = 0.20
MESHES = ("dp_replicate=2", "dp_shard=2", "tp=2", "cp=2", "pp=2")
DLAUNCH = str(Path(sys.executable).parent / "dlaunch")


@dataclass(frozen=True)
class Setting:
    """What is trained; `batch` is the global number of sequences."""

    preset: str
    layers: int
    batch: int
    seq: int
    steps: int

    @property
    def config(self) -> ModelConfig:
        return preset(self.preset, layers=self.layers)

    def arguments(self, batch: int, micro_batches: int = 1) -> list[str]:
        flags = {**asdict(self), "batch": batch, "data": "synthetic", "accumulate": micro_batches}
        return [part for name, value in flags.items() for part in (f"--{name}", str(value))]


@dataclass(frozen=True)
class Row:
    """Seconds of a step: predicted, with all overlap and with none, and measured (median of the rounds' medians)."""

    mesh: str
    overlapped_s: float
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="38M")
    for name, default in (("layers", 4), ("batch", 8), ("seq", 128), ("steps", 8), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = vars(parser.parse_args())
    file, rounds = options.pop("json"), options.pop("rounds")
    file = file and file.absolute()
    with tempfile.TemporaryDirectory() as home:
        os.environ["DLAUNCH_HOME"] = home
        os.chdir(home)  # where no inventory is, all that follows is about this machine
        measured, rows = compare(Setting(**options), rounds, Path(home))
    print("\n".join([measured, *table(rows)]))
    if file:
        document = {"measured": measured, "rows": [{**asdict(row), "error": row.error} for row in rows]}
        file.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(any(abs(row.error) > LIMIT for row in rows))


def compare(setting: Setting, rounds: int, home: Path) -> tuple[str, list[Row]]:
    """What was measured, in words, and a row for each mesh."""
    measured = links(home)
    speeds: list[float] = []
    seconds: dict[str, list[float]] = {mesh: [] for mesh in MESHES}
    for number in range(rounds):
        speeds.append(compute(setting, home))
        for mesh in MESHES:
            seconds[mesh] += run(setting, home, [(mesh, RANKS, setting.batch, micro_batches(mesh))])
        print(f"round {number + 1} of {rounds}: {speeds[-1] / 1e9:.1f} GFLOP/s", file=sys.stderr, flush=True)
    flops, rows = statistics.median(speeds), []
    for mesh, steps in seconds.items():
        predicted = predict(setting, MeshSpec.parse(mesh), micro_batches(mesh), measured, flops)
        rows.append(Row(mesh, predicted.overlapped, predicted.step, statistics.median(steps)))
    return f"{measured.note()}; {flops / 1e9:.1f} GFLOP/s a rank", rows


def micro_batches(mesh: str) -> int:
    return 4 if mesh.startswith("pp") else 1


def links(home: Path) -> Measured:
    """α and β of two ranks, kept where the planner finds them."""
    argv = [DLAUNCH, "bench", "comm", "--nodes", "1", "--nproc-per-node", str(RANKS), "--json"]
    subprocess.run(argv, check=True, capture_output=True, cwd=home)
    inventory, file = load_inventory(None)
    return kept_measures(inventory.cluster(None)[0], file)


def compute(setting: Setting, home: Path) -> float:
    """Operations per second of one rank, two of them at work on their own."""
    share = setting.batch // RANKS
    seconds = max(run(setting, home, [("dp_replicate=1", 1, share, 1)] * RANKS))
    return share * setting.seq * flops_per_token(Sizes.of(setting.config), setting.seq) / seconds


def run(setting: Setting, home: Path, jobs: Sequence[tuple[str, int, int, int]]) -> list[float]:
    """Median seconds of a step of jobs (mesh, ranks, batch, micro-batches) that run at once, one thread a rank."""
    started = []
    for mesh, ranks, batch, parts in jobs:
        shape = ["--nodes", "1", "--nproc-per-node", str(ranks), "--mesh", mesh, "--env", "OMP_NUM_THREADS=1"]
        argv = [DLAUNCH, "run", "workloads/nd.py", "--detach", "--json", *shape, "--"]
        done = subprocess.run([*argv, *setting.arguments(batch, parts)], check=True, capture_output=True, cwd=home)
        started.append(json.loads(done.stdout)["job"])
    for job in started:
        subprocess.run([DLAUNCH, "wait", job, "--json"], check=True, capture_output=True, cwd=home)
    return [median_step(JobPaths(home / "jobs" / job)) for job in started]


def median_step(paths: JobPaths) -> float:
    records = [json.loads(line) for line in paths.progress(0, 0).read_text().splitlines()]
    return statistics.median(record["step_s"] for record in records[WARM_UP:])


def predict(setting: Setting, mesh: MeshSpec, parts: int, measured: Measured, flops: float) -> StepTime:
    config = setting.config
    device = DeviceType("core", 1e12, flops)
    machine = with_measured(probed_nodes([HostTopology("here")], RANKS, device, Network()), measured)
    model = Model(setting.preset, Sizes.of(config), config.heads, config.kv_heads, config.vocab)
    question = Question(model, machine, setting.batch, setting.seq, "float32")
    case = case_of(question, mesh, parts, checkpointing=False)
    return step_time(question, case, tuple(case.traffic()))


def table(rows: Sequence[Row]) -> list[str]:
    lines = [f"{'mesh':<16}{'predicted, overlapped–not':>28}{'measured':>12}{'error':>8}"]
    for row in rows:
        band = f"{row.overlapped_s * 1e3:.0f}–{row.predicted_s * 1e3:.0f} ms"
        lines.append(f"{row.mesh:<16}{band:>28}{row.measured_s * 1e3:>9.0f} ms{row.error:>8.0%}")
    return lines


if __name__ == "__main__":
    main()
