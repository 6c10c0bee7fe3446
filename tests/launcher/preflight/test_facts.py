"""This machine, really looked at: the node side's document becomes facts, a row of `nodes` and an empty verdict."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.agent.inspect import inspect_host, run_tool, why_not_writable
from launcher.preflight.facts import HostFacts, read_facts
from launcher.preflight.nodes import answered, silent, table
from launcher.topology.probe import probe_script


@pytest.fixture(scope="module")
def raw() -> dict[str, Any]:
    document = inspect_host("~/jobs", ["localhost", "no-such-host.invalid"], probe_script())
    return dict(json.loads(json.dumps(document)))


@pytest.fixture
def facts(raw: dict[str, Any]) -> HostFacts:
    return read_facts("here", raw, raw["time"] - 1, raw["time"] + 3, {"NCCL_ALGO": "Ring"})


def test_everything_has_its_place(facts: HostFacts, raw: dict[str, Any]) -> None:
    assert facts.host == facts.topology.host == "here"
    assert facts.limits["open_files"] == tuple(raw["limits"]["open_files"])
    assert facts.interfaces["lo"].up and "127.0.0.1" in facts.addresses["lo"]
    assert facts.resolved["no-such-host.invalid"] == [] and "127.0.0.1" in (facts.resolved["localhost"] or ())
    assert facts.environment["NCCL_ALGO"] == "Ring"
    assert (round(facts.clock_offset), facts.clock_doubt) == (-1, 2.0)
    assert facts.memory > 1 << 30 and facts.disk_free and facts.directory == str(Path.home() / "jobs")


def test_driver_and_cuda_are_versions_too(raw: dict[str, Any]) -> None:
    smi = {"text": "Driver Version   : 570.1\nCUDA Version     : 12.8\n"}
    versions = read_facts("here", {**raw, "reports": {"nvidia-smi": smi}}, 0, 0, {}).versions
    assert (versions["driver"], versions["cuda"]) == ("570.1", "12.8")


def test_a_probe_that_failed_is_a_gap(raw: dict[str, Any]) -> None:
    broken = {**raw, "probe": {"text": "", "error": "timed out"}}
    assert "timed out" in read_facts("here", broken, 0, 0, {}).topology.gaps


def test_a_row_of_nodes_is_json_and_equal_hosts_share_a_line(facts: HostFacts) -> None:
    row = answered(facts)
    json.dumps(row)
    lines = table([{**row, "host": "n1"}, {**row, "host": "n2"}, silent("n3", "n3: no route to host")])
    assert [line.split()[0] for line in lines] == ["HOSTS", "n[1-2]", "n3"]
    assert "no route to host" in lines[2]


def test_a_tool_that_fails_or_is_not_there_says_why() -> None:
    assert run_tool(["sh", "-c", "echo seen; echo no permission >&2; exit 3"]) == {
        "text": "seen",
        "error": "no permission",
    }
    assert "No such file" in run_tool(["no-such-tool"])["error"]


def test_a_folder_that_is_not_there_is_judged_by_its_parent(tmp_path: Path) -> None:
    assert why_not_writable(tmp_path / "a" / "b") == ""
    assert not list(tmp_path.iterdir())
    assert "sys" in why_not_writable(Path("/sys/nothing/here"))


def test_a_look_is_quick(raw: dict[str, Any]) -> None:
    began = time.process_time()
    inspect_host("/tmp", ["localhost"], probe_script())
    assert time.process_time() - began < 1.0
