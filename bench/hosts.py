"""Connect to N SSH hosts, run `true` on each and collect the answers: ours beside a tuned clush, on the same hosts.

    python -m bench.hosts [--hosts 64] [--rounds 5] [--json FILE]

Raises the hosts in network namespaces (needs root). Both sides are measured as whole processes, start-up included, in
alternation; CPU seconds are the client's, with its children. clush gets a fan-out of all hosts and the quick key
exchange (curve25519), without which it is several times slower.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from launcher.hosts import connect_all
from launcher.hosts.protocol import on_all
from launcher.hosts.ssh_address import SshAddress
from tests.lab import packages
from tests.lab.namespaces import processes, wait_until
from tests.lab.ssh import SshLab


@dataclass(frozen=True)
class Sample:
    """One run of one side; seconds."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Left:
    """What is left when our process has closed all hosts: in it, beyond what it held before, and on the hosts."""

    threads: int
    descriptors: int
    sshd_sessions: int


@dataclass(frozen=True)
class Result:
    """What is printed and written."""

    hosts: int
    rounds: int
    cpus: int | None
    dlaunch: list[Sample]
    clush: list[Sample]
    left: list[Left]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hosts", description="64 SSH hosts: ours beside clush.")
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(json.dumps(run_client(json.loads(options.client))))
        return
    packages.install(packages.SSH_BENCH)
    with SshLab(options.hosts) as lab:
        result = compare(lab, options.rounds)
    print(table(result))
    if options.json:
        options.json.write_text(json.dumps(asdict(result), indent=1) + "\n")


def compare(lab: SshLab, rounds: int) -> Result:
    """Both sides in alternation, after one unmeasured round that warms the file cache."""
    ours = [sys.executable, "-m", "bench.hosts", "--client", json.dumps(addresses(lab))]
    quick = f"-F {lab.ssh_config} -o KexAlgorithms=curve25519-sha256"
    names = ",".join(lab.address(host) for host in lab.hosts)
    clush = ["clush", "-f", str(len(lab.hosts)), "-o", quick, "-w", names, "true"]
    result = Result(len(lab.hosts), rounds, os.cpu_count(), [], [], [])
    for round_number in range(rounds + 1):
        sample, output = measure(lab, ours)
        result.left.append(Left(**json.loads(output), sshd_sessions=sessions_left(lab)))
        peer, _ = measure(lab, clush)
        if round_number:
            result.dlaunch.append(sample)
            result.clush.append(peer)
    return result


def measure(lab: SshLab, argv: list[str]) -> tuple[Sample, str]:
    """Run `argv` on the login node; raises CalledProcessError when it fails."""
    started = time.monotonic()
    with lab.start_on_login(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv, output)
    return Sample(wall, usage.ru_utime + usage.ru_stime), output


def sessions_left(lab: SshLab) -> int:
    """Processes on the hosts beside their two own (the namespace's keeper, sshd), once sessions had time to end."""
    own = 2 * len(lab.hosts)

    def running() -> int:
        return sum(len(processes(lab.namespace(host))) for host in lab.hosts)

    try:
        wait_until(lambda: running() == own, "sessions to end", timeout=10)
    except TimeoutError:
        return running() - own
    return 0


def addresses(lab: SshLab) -> list[dict[str, Any]]:
    common = {"user": "root", "identity": str(lab.identity), "known_hosts": str(lab.known_hosts)}
    return [{"name": host, "address": lab.address(host), **common} for host in lab.hosts]


def run_client(known: list[dict[str, Any]]) -> dict[str, int]:
    """Our side: connect, run, collect, close. Returns threads and descriptors that are left over."""
    before = threading.active_count(), descriptors()
    hosts = connect_all([SshAddress(**address) for address in known])
    if hosts.failed:
        sys.exit("\n".join(map(str, hosts.failed.values())))
    connected = list(hosts.good.values())
    answers = on_all(connected, lambda host: host.run(["true"]).status).whole()
    if set(answers.values()) != {0}:
        sys.exit(f"not every host answered: {answers}")
    on_all(connected, lambda host: host.close())
    after = threading.active_count(), descriptors()
    return {"threads": after[0] - before[0], "descriptors": after[1] - before[1]}


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def table(result: Result) -> str:
    lines = [f"{result.hosts} hosts, connect + true + collect, median (fastest) of {result.rounds} rounds"]
    lines.append(f"{'':10}{'wall s':>16}{'client CPU s':>16}")
    for side, taken in (("dlaunch", result.dlaunch), ("clush", result.clush)):
        walls, cpus = [sample.wall_s for sample in taken], [sample.cpu_s for sample in taken]
        cells = [f"{statistics.median(values):.2f} ({min(values):.2f})" for values in (walls, cpus)]
        lines.append(f"{side:10}{cells[0]:>16}{cells[1]:>16}")
    kinds = [field.name for field in fields(Left)]
    worst = ", ".join(f"{max(getattr(left, kind) for left in result.left)} {kind}" for kind in kinds)
    return "\n".join([*lines, f"left after dlaunch, worst round: {worst}"])


if __name__ == "__main__":
    main()
