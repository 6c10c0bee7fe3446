"""The Debian packages that the labs need, installed when they are missing.

python -m tests.lab.packages      install those of all labs ahead of the tests, where no test's deadline runs
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SSH_LAB = (
    "openssh-server",
    "openssh-client",
    "iproute2",
    "iptables",
    "procps",
    "ethtool",
    "util-linux",
    "gcc",
    "libc6-dev",
)
SLURM_LAB = (
    "slurm-wlm", "slurm-client", "slurmdbd", "munge", "mariadb-server", "iproute2", "util-linux", "procps", "sudo",
)  # fmt: skip
BROWSER = ("chromium-headless-shell",)
LOCK = Path(tempfile.gettempdir()) / "dlaunch-lab-packages.lock"
SSH_BENCH = (*SSH_LAB, "clustershell")


def missing(packages: Sequence[str]) -> list[str]:
    """Those of `packages` that are not installed."""
    shown = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *packages],
        capture_output=True,
        text=True,
    )
    installed = {line.split()[0] for line in shown.stdout.splitlines() if line.endswith(" installed")}
    return [package for package in packages if package not in installed]


def install(wanted: Sequence[str]) -> None:
    """Install what is missing; raises CalledProcessError where apt refuses, FileNotFoundError without apt."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers ask at once, and apt-get update refuses a second one
        if absent := missing(wanted):
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"]
            subprocess.run([*apt, "update"], check=True, env=environment)
            subprocess.run([*apt, "install", "--yes", "--no-install-recommends", *absent], check=True, env=environment)


if __name__ == "__main__":
    if os.geteuid() == 0:
        install([*SSH_LAB, *SLURM_LAB, *BROWSER])
    else:
        print("the labs need root: their tests will skip")
