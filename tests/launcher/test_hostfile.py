"""Host files of DeepSpeed, MPI and PBS as an inventory, and what is wrong with them by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import InputError
from launcher.hostfile import import_hostfile, parse_hostfile
from launcher.inventory import SshCluster, parse_inventory
from tests.support.dlaunch import Dlaunch


def cluster_of(folder: Path, text: str) -> SshCluster:
    file = folder / "hostfile"
    file.write_text(text)
    cluster = parse_inventory(import_hostfile(file, "hosts")[1], "imported").cluster("hosts")[1]
    assert isinstance(cluster, SshCluster)
    return cluster


@pytest.mark.parametrize(
    ("text", "hosts", "ranks"),
    [
        ("worker-1 slots=4\nworker-2 slots=4\n", ["worker-1", "worker-2"], 4),
        ("# ours\nn10 slots=8 max_slots=16  # fast\n\nn2 slots = 8\n", ["n10", "n2"], 8),
        ("n1:2\nn2:2\nn3:2", ["n1", "n2", "n3"], 2),
        ("n1\nn1\nn2\nn2\n", ["n1", "n2"], 2),
        ("10.0.0.7\n10.0.0.8\n", ["10.0.0.7", "10.0.0.8"], 1),
    ],
)
def test_every_form_gives_hosts_in_order_and_ranks(tmp_path: Path, text: str, hosts: list[str], ranks: int) -> None:
    cluster = cluster_of(tmp_path, text)
    assert ([entry.name for entry in cluster.hosts], cluster.nproc_per_node) == (hosts, ranks)


def test_users_stay_with_their_hosts(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "ann@n1 slots=2\nn2 slots=2\n")
    assert [(entry.name, entry.user) for entry in cluster.hosts] == [("n1", "ann"), ("n2", None)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n1 slots=2\nn2 slots=\n", "file:2: not a host and its slots"),
        ("n1 slots=2\n\nn1 slots=2\n", "file:3: n1 is in line 1 already"),
        ("n1 slots=two\n", "file:1: slots: 'two' is no number"),
        ("n1 slots=0\n", "file:1: slots: '0' is no number"),
        ("# nothing\n", "file: no host in it"),
        ("n1\nssh n2 please\n", "file:2: not a host"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_hostfile(text, "file")


def test_the_command_prints_an_inventory_that_can_be_used(dlaunch: Dlaunch) -> None:
    (dlaunch.work / "hostfile").write_text("n1 slots=4\nn2 slots=4\nn3 slots=8\n")
    done = dlaunch.run("nodes", "--import", "hostfile")
    assert done.returncode == 2
    assert "hostfile:3: slots: n3 has 8 slots and n1 4" in done.stderr
    (dlaunch.work / "hostfile").write_text("n1 slots=4\nn2 slots=4\n")
    assert dlaunch.json("nodes", "--import", "hostfile")["hosts"][1] == {"host": "n2", "user": None, "slots": 4}
    printed = dlaunch.run("nodes", "--import", "hostfile", "--cluster", "gpus").stdout
    assert "hosts:\n    - n[1-2]\n" in printed
    (_, cluster) = parse_inventory(printed, "printed").cluster(None)
    assert cluster.nproc_per_node == 4
