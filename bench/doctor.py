"""The doctor against torchfrtrace on the same dumps in the same run: CPU, time and memory.

python -m bench.doctor                  256 ranks × 2,000 entries (tp8 + dp + world), both analysers
python -m bench.doctor --ranks 1024     the large one; torchfrtrace alone takes minutes
python -m bench.doctor --ranks 16384 --reduced --no-peer     from the records that nodes reduce
python -m bench.doctor --log 1000       NCCL INFO log of 1,000 MB against grep -c
python -m bench.doctor --json FILE      writes the result too
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
from doctor.evidence.flight_recorder import normalised
from doctor.evidence.rank_table import fold_ranks
from doctor.evidence.tabulate import tabulate
from tests.doctor.dumps import WORLD, Op, Recorder, grid, group

ENTRIES = 2_000
TP = 8
RANKS_PER_HOST = 8
POLL_S = 0.05
LOG_HOSTS, LOG_CHANNELS = 64, 24
LOG_PREFIX = b"node%d:%d:%d [%d] NCCL INFO "


@dataclass(frozen=True)
class Cost:
    """What a command took. Seconds, and bytes of proportional memory at its peak."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    output: str

    def __str__(self) -> str:
        return f"{self.wall_s:8.2f} s wall  {self.cpu_s:8.2f} s CPU  {self.peak_bytes / 1e6:8.0f} MB peak"


def programs(ranks: int) -> Iterator[Recorder]:
    """Ranks of a dp × tp mesh that made 2,000 calls, all but the last rank's last one."""
    return _played(grid(ranks, TP))


def _played(ranks: Sequence[Recorder]) -> Iterator[Recorder]:
    for one in ranks:
        calls = [Op(group(one, "tp")), Op(group(one, "dp"), "_all_gather_base", ((4096, 16),)), Op(WORLD)]
        one.run(*(calls * (ENTRIES // 3)))
        if one is not ranks[-1]:
            one.wait(Op(WORLD, "barrier", ()))
        yield one


def write(ranks: int, folder: Path) -> None:
    for one in programs(ranks):
        one.write(folder)


def write_reduced(ranks: int, folder: Path) -> None:
    """The records of all ranks, a file a host: all from the calls of one rank, and of the last, which misses one."""
    usual, late = (tabulate(normalised(one.dump()), 0, "").to_json() for one in _played(grid(2 * TP, TP)[:2]))
    for host in range(0, ranks, RANKS_PER_HOST):
        with (folder / f"recorder-{host}.jsonl").open("w") as lines:
            for rank in range(host, min(ranks, host + RANKS_PER_HOST)):
                record = late if rank == ranks - 1 else usual
                row, column = divmod(rank, TP)
                members = (range(row * TP, row * TP + TP), range(column, ranks, TP), range(ranks))
                groups = [
                    {**view, "ranks": fold_ranks(one)} for view, one in zip(record["groups"], members, strict=True)
                ]
                record = {**record, "rank": rank, "where": f"fr.{rank}", "groups": groups}
                lines.write(json.dumps({"dlaunch_rank_table": record}) + "\n")


def measure(argv: Sequence[str]) -> Cost:
    """Run a command to its end, with the proportional memory of its whole tree."""
    started, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.DEVNULL)
        while True:
            pid, _, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            peak = max(peak, _memory(process.pid))
            time.sleep(POLL_S)
        out.seek(0)
        output = out.read().decode(errors="replace")
    return Cost(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, peak, output)


def _memory(pid: int) -> int:
    total = 0
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.Error):
                total += process.memory_full_info().pss
    return total


def bare_load(folder: Path) -> float:
    """Seconds of a plain pickle.load of all files, one after the other."""
    started = time.perf_counter()
    for path in folder.iterdir():
        with path.open("rb") as stream:
            pickle.load(stream)
    return time.perf_counter() - started


def compare_dumps(ranks: int, reduced: bool, peer: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (write_reduced if reduced else write)(ranks, folder)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{ranks} ranks x {ENTRIES:,} entries, {size / 1e6:.0f} MB{', reduced' if reduced else ''}")
        load = None if reduced else bare_load(folder)
        ours = measure([sys.executable, "-m", "doctor.cli", "hang", name, "--json"])
        print(f"  ddoctor hang   {ours}")
        answer = json.loads(ours.output)["findings"][0]
        print(f"                 {answer['code']} {answer['ranks']}")
        result: dict[str, Any] = {"ranks": ranks, "bytes": size, "ours": vars(ours), "load_s": load}
        if load:
            print(f"  pickle.load    {load:8.2f} s; ddoctor takes {ours.wall_s / load:.2f} of it")
        if peer and not reduced:
            theirs = measure([str(Path(sys.executable).parent / "torchfrtrace"), name, "-p", "nccl_trace_rank_"])
            print(f"  torchfrtrace   {theirs}\n                 {theirs.cpu_s / ours.cpu_s:.1f} x the CPU of ddoctor")
            result["torchfrtrace"] = vars(theirs)
        return result


def log_lines() -> Iterator[bytes]:
    """What NCCL prints of connections: on 64 hosts, 24 channels inside each, every fourth between them, and trees."""
    for host in range(LOG_HOSTS):
        for channel in range(LOG_CHANNELS):
            for device in range(RANKS_PER_HOST):
                prefix = LOG_PREFIX % (host, 1_000 + device, 2_000 + device, device)
                rank = host * RANKS_PER_HOST + device
                near = b"Channel %02d/0 : %d[%d] -> %d[%d]" % (channel, rank, device, rank + 1, (device + 1) % 8)
                yield prefix + near + b" via P2P/CUMEM/read\n"
                if channel % 4 == 0:
                    far = b"Channel %02d/0 : %d[%d] -> %d[%d]" % (channel, rank, device, rank + 8, device)
                    yield prefix + far + b" [send] via NET/IB/%d/GDRDMA\n" % device
                if channel % 8 == 0:
                    yield prefix + b"Trees [%d] %d/-1/-1->%d->%d\n" % (channel, rank + 1, rank, rank - 1)


def compare_log(megabytes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "nccl.log")
        block = b"".join(log_lines())
        with path.open("wb") as stream:
            for _ in range(megabytes * 1_000_000 // len(block)):
                stream.write(block)
        size = path.stat().st_size / 1e6
        ours = measure([sys.executable, "-m", "doctor.cli", "diagnose", str(path), "--json"])
        grep = measure(["grep", "-c", "NCCL INFO", str(path)])
        print(f"NCCL log of {size:.0f} MB\n  ddoctor diagnose {ours}  {size / ours.cpu_s:.0f} MB/s per core")
        print(f"  grep -c          {grep}  ddoctor / grep = {ours.wall_s / grep.wall_s:.1f}")
        return {"bytes": path.stat().st_size, "ours": vars(ours), "grep": vars(grep)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--reduced", action="store_true", help="records that nodes reduced, instead of dumps")
    parser.add_argument("--no-peer", action="store_true", help="leave torchfrtrace out")
    parser.add_argument("--log", type=int, metavar="MB", help="measure an NCCL log of this size instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    given = parser.parse_args()
    found = compare_log(given.log) if given.log else compare_dumps(given.ranks, given.reduced, not given.no_peer)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
