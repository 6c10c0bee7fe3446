"""`dlaunch preflight --quick` of N SSH hosts beside a tuned `clush hostname` on the same hosts.

    python -m bench.preflight [--hosts 64] [--rounds 3] [--json FILE]

Raises the hosts in network namespaces (needs root). Whole processes in alternation, start-up included, after one round
that warms caches and brings our node side to the hosts. The aim: at most twice clush's time and 5 s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.hosts import Sample, measure
from tests.lab import packages
from tests.lab.ssh import SshLab

FACTOR, MARGIN_S = 2.0, 5.0


@dataclass(frozen=True)
class Result:
    """Whole-process samples of both sides; the first call's time holds the sending of our node side."""

    hosts: int
    first_s: float
    preflight: list[Sample] = field(default_factory=list)
    clush: list[Sample] = field(default_factory=list)

    @property
    def limit_s(self) -> float:
        return FACTOR * statistics.median(sample.wall_s for sample in self.clush) + MARGIN_S

    @property
    def wall_s(self) -> float:
        return statistics.median(sample.wall_s for sample in self.preflight)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.preflight", description="preflight --quick beside clush.")
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = parser.parse_args()
    packages.install(packages.SSH_BENCH)
    with SshLab(options.hosts) as lab:
        result = compare(lab, options.rounds)
    print(report(result))
    if options.json:
        options.json.write_text(json.dumps(asdict(result), indent=1) + "\n")
    sys.exit(result.wall_s > result.limit_s)


def compare(lab: SshLab, rounds: int) -> Result:
    """Both sides in alternation. Raises CalledProcessError where preflight finds a fault on these sound hosts."""
    settings = {"python": sys.executable, "nproc_per_node": 1}
    (lab.home / "inventory.yaml").write_text(lab.inventory_yaml(**settings))
    program = str(Path(sys.executable).parent / "dlaunch")
    ours = ["env", "-C", str(lab.home), program, "preflight", "--quick"]
    quick = f"-F {lab.ssh_config} -o KexAlgorithms=curve25519-sha256"
    names = ",".join(lab.address(host) for host in lab.hosts)
    clush = ["clush", "-f", str(len(lab.hosts)), "-o", quick, "-w", names, "hostname"]
    first, _ = measure(lab, ours)
    measure(lab, clush)
    result = Result(len(lab.hosts), first.wall_s)
    for _ in range(rounds):
        result.preflight.append(measure(lab, ours)[0])
        result.clush.append(measure(lab, clush)[0])
    return result


def report(result: Result) -> str:
    lines = [
        f"{result.hosts} hosts, median (fastest) of {len(result.clush)} rounds; first preflight {result.first_s:.2f} s"
    ]
    for side, samples in (("preflight", result.preflight), ("clush", result.clush)):
        walls = [sample.wall_s for sample in samples]
        cpu = statistics.median(sample.cpu_s for sample in samples)
        lines.append(f"{side:10} {statistics.median(walls):6.2f} ({min(walls):.2f}) s, client CPU {cpu:.2f} s")
    verdict = "kept" if result.wall_s <= result.limit_s else "missed"
    return "\n".join([*lines, f"limit 2 x clush + 5 s = {result.limit_s:.2f} s: {verdict}"])


if __name__ == "__main__":
    main()
