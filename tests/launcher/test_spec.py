"""The mesh: row-major, groups by axis, and what cannot be."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from launcher.errors import InputError
from launcher.inventory import parse_inventory
from launcher.jobs.devices import hosts_to_take
from launcher.jobs.request import (
    RunRequest,
    build_spec,
    candidate_hosts,
    check_kind,
    parse_env,
    parse_nodes,
    resized,
    resolve_script,
)
from launcher.spec import JobSpec, MeshSpec, format_coordinate


def test_coordinates_are_row_major() -> None:
    mesh = MeshSpec.parse("pp=2,dp_shard=2,tp=2")
    assert format_coordinate(mesh.coordinate(5)) == "pp1/dp_shard0/tp1"
    assert [mesh.coordinate(rank)["tp"] for rank in range(4)] == [0, 1, 0, 1]


def test_groups_communicate_along_their_axis() -> None:
    mesh = MeshSpec.parse("dp_replicate=2,tp=3")
    assert mesh.groups("tp") == [[0, 1, 2], [3, 4, 5]]
    assert mesh.groups("dp_replicate") == [[0, 3], [1, 4], [2, 5]]


def test_ep_is_a_second_view_and_adds_no_ranks() -> None:
    mesh = MeshSpec.parse("pp=2,dp_shard=4,ep=2")
    assert (mesh.world_size, mesh.axes) == (8, ("pp", "dp_shard"))
    with pytest.raises(InputError, match="ep=3 does not divide"):
        MeshSpec.parse("dp_shard=4,ep=3")


@pytest.mark.parametrize("text", ["", "tp", "tp=", "tp=x", "tp=0", "tp=2,tp=2", "=2", "tp=-1", "tp=²"])
def test_a_bad_mesh_is_named(text: str) -> None:
    with pytest.raises(InputError, match="--mesh"):
        MeshSpec.parse(text)


def test_the_product_must_be_the_world() -> None:
    with pytest.raises(InputError, match="tp=2 has 2 ranks, but 2 nodes x 2 processes are 4"):
        JobSpec("t", "t.py", (), 2, 2, MeshSpec({"tp": 2}))


def test_a_spec_survives_json() -> None:
    spec = JobSpec("t", "t.py", ("a", "b"), 2, 2, MeshSpec({"dp_shard": 4}), max_restarts=2)
    assert JobSpec.from_json(spec.to_json()) == spec


def test_an_elastic_job_resizes_its_data_axis() -> None:
    spec = JobSpec("t", "t.py", (), 4, 2, MeshSpec({"dp_replicate": 4, "tp": 2}))
    assert resized(spec, 3).mesh.degrees == {"dp_replicate": 3, "tp": 2}
    with pytest.raises(InputError, match="does not fit"):
        resized(JobSpec("t", "t.py", (), 4, 2, MeshSpec({"pp": 4, "tp": 2})), 3)


@pytest.mark.parametrize(("text", "wanted"), [("4", (4, 4)), ("6:8", (6, 8)), (None, (3, 3))])
def test_nodes(text: str | None, wanted: tuple[int, int]) -> None:
    assert parse_nodes(text, 3) == wanted


@pytest.mark.parametrize("text", ["0", "8:6", "a", "4:", "-1", "1:2:3"])
def test_bad_nodes(text: str) -> None:
    with pytest.raises(InputError, match="--nodes"):
        parse_nodes(text, 3)


def test_a_machine_simulates_more_nodes_than_its_inventory_names_but_not_any_number() -> None:
    local = parse_inventory("default: here\nclusters:\n  here: {kind: local, nodes: 4}\n", "i.yaml").clusters["here"]
    spec = build_spec(RunRequest("workloads/hsdp.py", nodes="6"), local, candidate_hosts(local, ()), None)
    assert spec.nodes == 6 and hosts_to_take(spec, local, candidate_hosts(local, ()))[-1] == "node5"
    with pytest.raises(InputError, match="--nodes: 99999 nodes asked for"):
        build_spec(RunRequest("workloads/hsdp.py", nodes="99999"), local, [], None)


@pytest.mark.parametrize(
    ("kind", "request_", "named"),
    [
        ("kind: local", RunRequest("t.py", sbatch=["time=1"]), "--sbatch"),
        ("kind: local", RunRequest("t.py", exclude=["node1"]), "--exclude"),
        ("kind: ssh, hosts: [a, b]", RunRequest("t.py", sbatch=["time=1"]), "--sbatch"),
        ("kind: ssh, hosts: [a, b]", RunRequest("t.py", exclude=["b"]), None),
        ("kind: slurm", RunRequest("t.py", sbatch=["time=1"], exclude=["b"]), None),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(kind: str, request_: RunRequest, named: str | None) -> None:
    cluster = parse_inventory(f"default: c\nclusters:\n  c: {{{kind}}}\n", "i.yaml").clusters["c"]
    with pytest.raises(InputError, match=named) if named else nullcontext():
        check_kind(request_, cluster)


def test_env_from_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_SHELL", "v")
    assert parse_env(["A=1=2", "B=", "FROM_SHELL"]) == {"A": "1=2", "B": "", "FROM_SHELL": "v"}
    for bad in ("=x", "1A=2", "A-B=1", "NOT_SET_ANYWHERE"):
        with pytest.raises(InputError, match="--env"):
            parse_env([bad])


def test_bundled_workloads_resolve_from_anywhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert resolve_script("workloads/hsdp.py").is_file()
    with pytest.raises(InputError, match=r"did you mean 'workloads/hsdp\.py'"):
        resolve_script("workloads/hspd.py")
