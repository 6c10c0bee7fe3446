"""Meshes and flags as they are written."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from workloads.common.mesh import World, parse_mesh
from workloads.common.options import Options, flag, parse
from workloads.fsdp import FSDPOptions


def test_a_mesh_keeps_its_order() -> None:
    assert list(parse_mesh("tp=2, dp_shard=4").items()) == [("tp", 2), ("dp_shard", 4)]


def test_no_mesh_is_none_given() -> None:
    assert parse_mesh("") == {}


@pytest.mark.parametrize("text", ["dp=2", "tp", "tp=0", "tp=-1", "tp=٢", "tp=2;cp=2"])
def test_a_part_that_is_no_axis_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not AXIS=DEGREE"):
        parse_mesh(text)


def test_the_world_is_read_from_torchruns_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    world = World.from_environment("cpu")
    assert (world.rank, world.size, world.nodes, world.device) == (5, 8, 4, torch.device("cpu"))


def test_flags_are_fields_with_their_types() -> None:
    options = parse(
        FSDPOptions, "", ["--lr", "0.1", "--steps", "3", "--no-compile", "--experts", "4", "--reshard", "2"]
    )
    assert (options.lr, options.steps, options.compile, options.experts) == (0.1, 3, False, 4)
    assert options.reshard_after_forward() == 2
    assert options.model().experts == 4


def test_a_workload_adds_its_own_flags() -> None:
    @dataclass(frozen=True)
    class Mine(Options):
        depth: int = flag(3, "of something")

    assert parse(Mine, "", ["--depth", "7"]).depth == 7


def test_an_unknown_flag_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(Options, "", ["--stepps", "3"])
    assert stopped.value.code == 2
    assert "--stepps" in capsys.readouterr().err
