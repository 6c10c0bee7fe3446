"""The Debian packages that the labs need, installed when they are missing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

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
SLURM_LAB = ("slurm-wlm", "slurm-client", "slurmdbd", "munge", "mariadb-server", "iproute2", "util-linux", "procps")
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


def install(packages: Sequence[str]) -> None:
    """Install what is missing; raises CalledProcessError where apt refuses, FileNotFoundError without apt."""
    wanted = missing(packages)
    if not wanted:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"]
    subprocess.run([*apt, "update"], check=True, env=environment)
    subprocess.run([*apt, "install", "--yes", "--no-install-recommends", *wanted], check=True, env=environment)
