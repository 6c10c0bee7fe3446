"""From a cluster's entry to what it means on its hosts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launcher.inventory import Cluster, parse_inventory
from launcher.jobs.reach import jobs_directory, python_of


def cluster(entry: str) -> Cluster:
    text = f"default: c\nclusters:\n  c: {{{entry}}}\n"
    return parse_inventory(text, "test").cluster(None)[1]


@pytest.mark.parametrize(
    ("entry", "python", "directory"),
    [
        ("kind: local", sys.executable, "HOME/jobs"),
        ("kind: local, python: /opt/bin/python", "/opt/bin/python", "HOME/jobs"),
        ("kind: ssh, hosts: n1", "python3", "~/.local/state/dlaunch/jobs"),
        ("kind: ssh, hosts: n1, directory: /data/jobs", "python3", "/data/jobs"),
        ("kind: slurm", sys.executable, "HOME/jobs"),
        ("kind: slurm, directory: /shared/jobs", sys.executable, "/shared/jobs"),
    ],
)
def test_python_and_the_jobs_directories(
    entry: str, python: str, directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLAUNCH_HOME", str(tmp_path))
    found = cluster(entry)
    assert (python_of(found), jobs_directory(found)) == (python, directory.replace("HOME", str(tmp_path)))
