"""`dlaunch plan` as a command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from launcher.cli.plan import plan
from launcher.errors import InputError
from launcher.planner.text import seconds_text
from launcher.spec import MeshSpec

FOUR = ("--nodes", "4", "--device-type", "h100-80g")
SEVEN = ("--params", "7e9", "--layers", "32", "--hidden", "4096", "--batch", "32")


def call(*arguments: str) -> str:
    return CliRunner().invoke(plan, arguments, catch_exceptions=False).stdout


def document(*arguments: str) -> dict[str, Any]:
    return dict(json.loads(call(*arguments, "--json")))


def test_the_document_has_the_contracts_keys() -> None:
    found = document(*SEVEN, *FOUR)
    assert found["schema"] == 1
    assert found["best"] == found["candidates"][0]
    assert {"mesh", "fits", "memory_bytes", "traffic_bytes", "time_s", "efficiency"} <= set(found["best"])
    assert set(found["best"]["memory_bytes"]) == {
        "parameters",
        "gradients",
        "optimizer",
        "gathered",
        "activations",
        "total",
    }
    assert {"compute", "communication", "step", "step_overlapped"} <= set(found["best"]["time_s"])
    assert len(found["best"]["efficiency"]) == 2
    assert found["reasons"]
    ddp = next(each for each in found["candidates"] if each["mesh"] == {"dp_replicate": 32})
    assert ddp["fits"] is False


def test_the_command_runs_the_best_mesh_on_this_cluster() -> None:
    found = document(*SEVEN, *FOUR)
    words = shlex.split(found["command"])
    assert words[:3] == ["dlaunch", "run", "workloads/nd.py"]
    assert words[words.index("--nodes") + 1] == "4"
    assert dict(MeshSpec.parse(words[words.index("--mesh") + 1]).degrees) == found["best"]["mesh"]
    assert words[words.index("--batch") + 1] == "32"


def test_the_workload_understands_the_commands_arguments() -> None:
    from workloads.common.options import parse
    from workloads.nd import NDOptions

    words = shlex.split(document("--preset", "8B", "--experts", "8", "--batch", "64", *FOUR)["command"])
    options = parse(NDOptions, "", words[words.index("--") + 1 :])
    assert (options.batch, options.experts, options.preset) == (64, 8, "8B")


def test_people_get_a_table_bars_and_the_command() -> None:
    text = call(*SEVEN, *FOUR)
    assert "does not fit" in text or "meshes in all" in text
    assert "█" in text
    assert text.rstrip().splitlines()[-1].startswith("dlaunch run ")


def test_where_nothing_fits_there_is_nothing_to_run() -> None:
    text = call("--preset", "70B", "--nodes", "1", "--device-type", "h100-80g")
    assert "no mesh fits" in text
    assert "dlaunch run" not in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.163, "163 ms"), (1.085, "1.08 s"), (150, "2.5 min"), (22_000, "6.11 h")]
)
def test_times_are_told_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_what_if_plans_again() -> None:
    found = document("--preset", "70B", *FOUR, "--what-if", "device-type=h200-141g,nodes=16")
    assert found["what_if"]["changes"] == "device-type=h200-141g,nodes=16"
    assert MeshSpec(found["what_if"]["best"]["mesh"]).world_size == 128
    assert MeshSpec(found["best"]["mesh"]).world_size == 32


def test_what_if_suggests_the_option_that_was_meant() -> None:
    with pytest.raises(InputError, match="did you mean 'nodes'"):
        call("--preset", "70B", *FOUR, "--what-if", "nods=3")


def test_what_if_changes_only_what_a_plan_depends_on() -> None:
    with pytest.raises(InputError, match=r"'json=1' is not OPTION=VALUE$"):
        call("--preset", "70B", *FOUR, "--what-if", "json=1")


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_an_amount_is_finite(value: str) -> None:
    result = CliRunner().invoke(plan, ["--params", value, *FOUR])
    assert result.exit_code == 2
    assert "not a number to reckon with" in result.output


def test_exactly_one_model() -> None:
    with pytest.raises(InputError, match="which model"):
        call(*FOUR)
    with pytest.raises(InputError, match="exclude each other"):
        call("--preset", "7B", "--params", "7e9", *FOUR)


def test_a_config_that_is_no_json(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        call("--config", str(file), *FOUR)
    with pytest.raises(InputError, match="cannot read"):
        call("--config", str(tmp_path / "none.json"), *FOUR)


def test_a_batch_that_nothing_divides_says_which_would_do() -> None:
    with pytest.raises(InputError, match="multiple of 56"):
        call("--preset", "70B", "--batch", "1", "--nodes", "7", "--device-type", "h100-80g")


def test_the_local_cluster_needs_the_speed_of_its_devices(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("default: here\nclusters:\n  here: {kind: local, nodes: 2}\n")
    arguments = ("--preset", "debug", "--inventory", str(inventory), "--devices-per-node", "2", "--seq", "128")
    with pytest.raises(InputError, match="--device-type"):
        call(*arguments)
    found = document(*arguments, "--tflops", "0.05", "--device-gb", "2")
    assert MeshSpec(found["best"]["mesh"]).world_size == 4
