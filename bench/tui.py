"""What `dlaunch top` costs: CPU, memory, first paint and key to paint, in a real terminal (a pty) of 200 x 50.

    python -m bench.tui [--seconds 20] [--json FILE]

`memory feed` measures drawing alone (the ranks' values are made in the process); `files` lets another process write
the samples of every host as agents do, and measures reading, parsing and drawing. `bare` is a Textual app with one
line of text, started the same way in the same run. Bytecode is compiled before, as after an installation.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
sys.path[0] = str(ROOT)  # else this file would stand for our package `tui`

COLUMNS, LINES = 200, 50
PER_HOST = 8
TARGETS = {16_384: (0.15, 200.0), 1_024: (0.03, 200.0)}  # ranks -> share of a core, MB
FIRST_PAINT_S = 0.7
KEY_TO_PAINT_S = 0.05
SETTLE_S = 4.0


@dataclass(frozen=True)
class Measured:
    """`cpu` is a share of one core, `rss` in MB, times in seconds; `*_cpu` is the CPU time that went into one.

    On a loaded machine the times by the clock tell of the load; the CPU time is what the program itself needs.
    """

    case: str
    ranks: int
    cpu: float
    rss: float
    first_paint: float
    first_paint_cpu: float
    key_to_paint: float
    key_to_paint_cpu: float


class Terminal:
    """A program in a pty, with the time of its output."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.began = time.perf_counter()
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, {**os.environ, **env, "TERM": "xterm-256color", "COLORTERM": "truecolor"})
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))

    def read_until(self, wanted: bytes, patience: float = 30.0) -> float:
        """Seconds since the start when `wanted` was painted."""
        seen = b""
        deadline = time.perf_counter() + patience
        while wanted not in seen:
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{wanted!r} was not painted; last: {seen[-400:]!r}")
            seen = (seen + self._read(0.2))[-200_000:]
        return time.perf_counter() - self.began

    def drain(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while (left := until - time.perf_counter()) > 0:
            self._read(min(left, 0.2))

    def press(self, key: bytes, then: bytes) -> tuple[float, float]:
        """Seconds from a key to the paint that it causes, by the clock and of CPU."""
        began, cpu = time.perf_counter(), self.cpu()
        os.write(self.master, key)
        return self.read_until(then) + self.began - began, self.cpu() - cpu

    def cpu(self) -> float:
        """Seconds of CPU so far, exact to well below the ticks of `cpu_times`."""
        tasks = Path("/proc", str(self.pid), "task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def _read(self, patience: float) -> bytes:
        ready, _, _ = select.select([self.master], [], [], patience)
        try:
            return os.read(self.master, 1 << 16) if ready else b""
        except OSError:
            return b""

    def close(self) -> None:
        os.write(self.master, b"q")
        self.drain(0.5)
        with suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.master)


def measure(case: str, ranks: int, seconds: float, argv: list[str], env: dict[str, str]) -> Measured:
    terminal = Terminal(argv, env)
    first_paint, first_paint_cpu = terminal.read_until(b"diagnose"), terminal.cpu()
    terminal.read_until(b"ranks on")
    terminal.drain(SETTLE_S)
    before, began = terminal.cpu(), time.perf_counter()
    terminal.drain(seconds)
    cpu = (terminal.cpu() - before) / (time.perf_counter() - began)
    rss = psutil.Process(terminal.pid).memory_info().rss / 1e6
    keys = []
    for label in (b"step lag", b"step time", b"data wait", b"since progress", b"device use", b"device memory"):
        keys.append(terminal.press(b"m", label))
        terminal.drain(0.37)  # out of step with the frames
    terminal.close()
    key, key_cpu = (statistics.median(times) for times in zip(*keys, strict=True))
    return Measured(case, ranks, cpu, rss, first_paint, first_paint_cpu, key, key_cpu)


def measure_bare() -> Measured:
    """The least that any Textual app needs: one line of text, changed by a key."""
    terminal = Terminal([sys.executable, __file__, "--bare"], {})
    first_paint, first_paint_cpu = terminal.read_until(b"painted"), terminal.cpu()
    terminal.drain(1.0)
    rss = psutil.Process(terminal.pid).memory_info().rss / 1e6
    key, key_cpu = terminal.press(b"m", b"pressed")
    terminal.close()
    return Measured("bare", 0, 0.0, rss, first_paint, first_paint_cpu, key, key_cpu)


def bare_app() -> None:
    """The program of the case `bare`."""
    from textual.app import App, ComposeResult
    from textual.widgets import Static

    class Bare(App[None]):
        def compose(self) -> ComposeResult:
            yield Static("painted")

        def key_m(self) -> None:
            self.query_one(Static).update("pressed")

        def key_q(self) -> None:
            self.exit()

    Bare().run()


def watch_in_memory(ranks: int) -> None:
    """The program of the case `memory`: `top` over a simulated feed."""
    from tui.app import TopApp
    from tui.feed.logs import LogSource
    from tui.feed.simulated import SimulatedFeed, simulated_job
    from tui.feed.source import Source

    feed = SimulatedFeed(simulated_job({"dp_replicate": ranks // 64, "dp_shard": 8, "tp": 8}, PER_HOST))
    TopApp(lambda: Source(feed, lambda _: LogSource({}), "sim")).run()


def write_files(home: Path, ranks: int) -> None:
    """The program that stands for all agents: one line a second into the samples of every host."""
    from launcher.common.paths import JobPaths
    from launcher.common.samples import NodeSample, RankSample, encode

    paths, step = JobPaths(home / "jobs" / "bench"), 0
    for node in range(ranks // PER_HOST):
        paths.node(node).mkdir(parents=True, exist_ok=True)
    while True:
        now, step = time.time(), step + 1
        for node in range(ranks // PER_HOST):
            first = node * PER_HOST
            samples = [
                RankSample(rank, 1000 + rank, "running", 1.0 + rank % 7 / 100, 4_000_000_000 + rank, step, 100_000,
                           9 / step, 0.8 + rank % 13 / 100, 0.04, 10_240.5, now, step * 120, 93.0, 60_000_000_000,
                           80_000_000_000, 62.0)
                for rank in range(first, first + PER_HOST)
            ]  # fmt: skip
            line = encode(NodeSample(now, node, f"n{node}", 0, 8.0, 1, 2, 3.0, 4.0, 0.001, samples))
            with paths.samples(node).open("ab") as file:
                file.write(line)
        time.sleep(max(0.0, 1.0 - (time.time() - now)))


def make_record(home: Path, ranks: int) -> None:
    """job.json of a running job of that size."""
    from launcher.common.paths import JobPaths
    from launcher.jobs.record import JobRecord, RankRecord, write_record
    from launcher.render import NodePlan

    mesh = {"dp_replicate": ranks // 64, "dp_shard": 8, "tp": 8}
    hosts = [f"n{node}" for node in range(ranks // PER_HOST)]
    root = home / "jobs" / "bench"
    nodes = [NodePlan(node, host, str(root), sys.executable, "", "/") for node, host in enumerate(hosts)]
    placed = [RankRecord(rank, rank // PER_HOST, rank % PER_HOST, hosts[rank // PER_HOST], {}) for rank in range(ranks)]
    record = JobRecord(
        "bench", "bench", "local", "local", "running", time.time(), {"script": "train.py"}, mesh, nodes, placed,
        started=time.time(),
    )  # fmt: skip
    write_record(JobPaths(root).record, record)


def from_files(ranks: int, seconds: float) -> Measured:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        home = Path(folder)
        make_record(home, ranks)
        writer = subprocess.Popen([sys.executable, __file__, "--write", folder, "--ranks", str(ranks)])
        try:
            env = {"DLAUNCH_HOME": folder}
            return measure(
                "files",
                ranks,
                seconds,
                [sys.executable, "-c", "from launcher.cli import main; main()", "top", "bench"],
                env,
            )
        finally:
            writer.kill()
            writer.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    parser.add_argument("--ranks", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.watch:
        watch_in_memory(options.ranks)
        return 0
    if options.bare:
        bare_app()
        return 0
    if options.write:
        write_files(options.write, options.ranks)
    with tempfile.TemporaryDirectory() as bytecode:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = bytecode
        subprocess.run([sys.executable, "-c", "import tui.app, tui.feed.live, launcher.cli.top"], check=True, cwd=ROOT)
        report(measure_all([options.ranks] if options.ranks else list(TARGETS), options.seconds), options.json)
    return 0


def measure_all(sizes: list[int], seconds: float) -> list[Measured]:
    measure_bare()  # compiles what it imports
    results = [measure_bare()]
    for ranks in sizes:
        watch = [sys.executable, __file__, "--watch", "--ranks", str(ranks)]
        results.append(measure("memory", ranks, seconds, watch, {}))
        results.append(from_files(ranks, seconds))
    return results


def report(results: list[Measured], file: Path | None) -> None:
    if file:
        file.write_text(json.dumps({"results": [asdict(result) for result in results]}))
    print(f"{'case':8} {'ranks':>6}  {'CPU':>7} {'RSS':>8} {'first paint (CPU)':>20} {'key to paint (CPU)':>20}")
    for one in results:
        cost = f"{one.case:8} {one.ranks:6}  {one.cpu:6.1%} {one.rss:5.0f} MB"
        first = f"{one.first_paint:8.2f} s ({one.first_paint_cpu:.2f} s)"
        print(f"{cost} {first} {1e3 * one.key_to_paint:9.0f} ms ({1e3 * one.key_to_paint_cpu:.0f} ms)")
    print("targets:", ", ".join(f"{n} ranks {cpu:.0%} {rss:.0f} MB" for n, (cpu, rss) in TARGETS.items()),
          f"first paint {FIRST_PAINT_S} s, key {1e3 * KEY_TO_PAINT_S:.0f} ms")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
