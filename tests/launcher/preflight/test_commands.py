"""`dlaunch nodes`, `dlaunch preflight` and `run --exclude-bad` as a user calls them, on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.agent.exercise import exercise
from tests.support.dlaunch import Dlaunch

TWO_CLUSTERS = """
default: here
clusters:
  here: {kind: local, nodes: 2}
  gone: {kind: ssh, hosts: '127.0.0.[250-251]', port: 9}
"""


@pytest.fixture
def dlaunch(tmp_path: Path) -> Dlaunch:
    work = tmp_path / "work"
    work.mkdir()
    (work / "inventory.yaml").write_text(TWO_CLUSTERS)
    return Dlaunch(tmp_path / "home", work)


def test_nodes_of_this_machine(dlaunch: Dlaunch) -> None:
    document = dlaunch.json("nodes")
    (row,) = document["hosts"]
    assert document["schema"] == 1 and row["reachable"] and row["cpus"] >= 1 and row["versions"]["torch"]
    assert "python" in dlaunch.run("nodes").stdout


def test_hosts_that_give_no_answer_are_listed_and_exit_with_3(dlaunch: Dlaunch) -> None:
    rows = dlaunch.json("nodes", "--cluster", "gone", status=3)["hosts"]
    assert [(row["host"], row["reachable"]) for row in rows] == [("127.0.0.250", False), ("127.0.0.251", False)]
    assert all(row["error"] for row in rows)
    hosts = dlaunch.json("preflight", "--cluster", "gone", "--quick", status=3)["hosts"]
    assert [host["verdict"] for host in hosts] == ["unknown", "unknown"]


def test_preflight_is_kept_and_opens_the_way_for_run(dlaunch: Dlaunch) -> None:
    script = dlaunch.script("")
    refused = dlaunch.run("render", script, "--exclude-bad")
    assert refused.returncode == 2 and "dlaunch preflight --cluster here" in refused.stderr
    checked = dlaunch.run("preflight", "--quick", "--json")
    (host,) = json.loads(checked.stdout)["hosts"]
    assert checked.returncode == {"good": 0, "bad": 1}[host["verdict"]], checked.stderr
    allowed = dlaunch.run("render", script, "--exclude-bad")
    assert allowed.returncode == {"good": 0, "bad": 2}[host["verdict"]], allowed.stderr


@pytest.mark.parametrize("option", ["--hosts", "--exclude"])
def test_a_name_that_is_no_host_is_refused(dlaunch: Dlaunch, option: str) -> None:
    done = dlaunch.run("preflight", "--cluster", "gone", option, "127.0.0.25")
    assert done.returncode == 2 and f"{option}: no host '127.0.0.25'; did you mean" in done.stderr


def test_a_host_alone_multiplies_rightly_and_sums_over_its_threads() -> None:
    answer = exercise("n1", {}, 0, 1.0, None, [], True)
    assert all(product["right"] and product["flops"] > 1e8 for product in answer["products"])
    assert 0 < answer["inside"]["seconds"] < 10
    assert answer["phases"] == []
