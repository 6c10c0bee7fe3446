"""Time and memory of placement on clusters of three levels, up to 16,384 ranks, and how they grow.

    python -m bench.placement [--json FILE]

The aim: 16,384 ranks within 2 s and 500 MB.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

DEVICES = 8
LEAF = 16  # nodes under one leaf switch
SPINE = 8  # leaves under one spine
SIZES = (128, 512, 2048, 8192, 16384)
LIMIT_S, LIMIT_MB = 2.0, 500.0


def measure(ranks: int) -> dict[str, float]:
    """Place `ranks` ranks once, with hosts in random order; seconds of `place` alone and peak memory of the process."""
    from launcher.placement import Network, place
    from launcher.spec import MeshSpec
    from launcher.topology import Device, HostTopology, Link

    links = tuple(Link(f"GPU{a}", f"GPU{b}", "NV", 18) for a in range(DEVICES) for b in range(a + 1, DEVICES))
    hosts = [
        HostTopology(
            f"n{i}",
            tuple(Device(d, f"GPU{d}", uuid=f"GPU-{i}-{d}") for d in range(DEVICES)),
            links=links,
            switches=(f"spine{i // (LEAF * SPINE)}", f"leaf{i // LEAF}"),
        )
        for i in range(ranks // DEVICES)
    ]
    random.Random(0).shuffle(hosts)
    mesh = MeshSpec({"pp": 4, "dp_replicate": ranks // 128, "dp_shard": 4, "tp": 8})
    start, cpu = time.perf_counter(), time.process_time()
    answer = place(mesh, hosts, DEVICES, False, network=Network(nics_per_node=8, nic_gbps=50.0))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"ranks": ranks, "seconds": seconds, "cpu_s": cpu, "peak_mb": peak, "gain": answer.report.gain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    rows = [in_own_process(size) for size in SIZES]
    largest = rows[-1]
    fits = largest["seconds"] <= LIMIT_S and largest["peak_mb"] <= LIMIT_MB
    print("\n".join(table(rows)))
    print(f"{largest['ranks']} ranks within {LIMIT_S:g} s and {LIMIT_MB:g} MB: {'yes' if fits else 'no'}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "within_limits": fits}))
    sys.exit(not fits)


def in_own_process(size: int) -> dict[str, float]:
    """A process for each size, so that peak memory is its own."""
    argv = [sys.executable, "-m", "bench.placement", "--one", str(size)]
    done = subprocess.run(argv, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def table(rows: list[dict[str, float]]) -> list[str]:
    """One line for each size; the last column is constant where time grows as n log n."""
    lines = [f"{'ranks':>6} {'seconds':>8} {'CPU s':>6} {'peak MB':>8} {'gain':>6} {'ns / (n log2 n)':>16}"]
    for row in rows:
        scaled = row["cpu_s"] / (row["ranks"] * math.log2(row["ranks"])) * 1e9
        measured = f"{row['seconds']:8.3f} {row['cpu_s']:6.3f} {row['peak_mb']:8.0f}"
        lines.append(f"{row['ranks']:6.0f} {measured} {row['gain']:6.2f} {scaled:16.0f}")
    return lines


if __name__ == "__main__":
    main()
