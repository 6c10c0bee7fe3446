"""What is started, and where each variable comes from."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from launcher.agent.shim import rank_environment
from launcher.hosts.protocol import quote
from launcher.render import NodePlan, Rendezvous, Settings, leftovers, rank_variables, render_node
from launcher.secrets import MASK, is_secret, masked
from launcher.spec import JobSpec, MeshSpec

SPEC = JobSpec("t", "/code/train.py", ("--lr", "1e-3"), 2, 4, MeshSpec({"dp_replicate": 2, "tp": 4}), mesh_given=True)
NODE = NodePlan(1, "n2", "/jobs/j", "/opt/python", "/cache/b", "/code", cpus=32)
MEET = Rendezvous("10.0.0.1", 23456)


def render(node: NodePlan = NODE, settings: Settings | None = None, spec: JobSpec = SPEC):  # type: ignore[no-untyped-def]
    return render_node("j", spec, node, MEET, settings or Settings(), 3)


def test_torchrun_gets_static_rendezvous_explicit_ranks_and_no_restarts_of_its_own() -> None:
    argv = render().argv
    options = dict(zip(argv[3::2], argv[4::2], strict=False))
    assert argv[:3] == ("/opt/python", "-m", "torch.distributed.run")
    assert options["--rdzv-backend"] == "static"
    assert (options["--nnodes"], options["--nproc-per-node"], options["--node-rank"]) == ("2", "4", "1")
    assert (options["--rdzv-endpoint"], options["--rdzv-id"], options["--max-restarts"]) == (
        "10.0.0.1:23456",
        "j-3",
        "0",
    )


def test_the_shim_stands_before_the_users_command() -> None:
    assert render().argv[-6:] == (
        "/cache/b/launcher/agent/shim.py", "/opt/python", "-u", "/code/train.py", "--lr", "1e-3",
    )  # fmt: skip


def test_an_ipv6_address_is_bracketed() -> None:
    launch = render_node("j", SPEC, NODE, Rendezvous("fd00::1", 20000), Settings(), 0)
    assert "[fd00::1]:20000" in launch.argv


def test_setup_lines_and_container_wrap_the_command() -> None:
    launch = render(settings=Settings(setup=["module load cuda"], container=["podman", "exec", "c"]))
    assert launch.argv[:2] == ("bash", "-c")
    assert "module load cuda" in launch.argv[2] and launch.argv[4:7] == ("podman", "exec", "c")


def test_the_command_line_wins_and_says_so() -> None:
    settings = Settings({"A": "i", "B": "i"}, {"A": "c", "OMP_NUM_THREADS": "3"}, {"B": "f"})
    found = {v.name: (v.value, v.origin) for v in render(settings=settings).environment}
    assert found["A"] == ("c", "command line")
    assert found["B"] == ("f", "forwarded")
    assert found["OMP_NUM_THREADS"] == ("3", "command line")


def test_threads_are_shared_among_the_ranks_by_default() -> None:
    assert render().env["OMP_NUM_THREADS"] == "8"
    assert render(replace(NODE, cpus=2)).env["OMP_NUM_THREADS"] == "1"


def test_devices_go_by_uuid_in_the_order_of_local_ranks() -> None:
    assert render(replace(NODE, devices=["GPU-b", "GPU-a"])).env["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"
    assert "CUDA_VISIBLE_DEVICES" not in render().env
    assert render(replace(NODE, hide_devices=True)).env["CUDA_VISIBLE_DEVICES"] == ""


def test_the_mesh_is_told_only_where_it_was_given() -> None:
    assert render().env["DLAUNCH_MESH"] == "dp_replicate=2,tp=4"
    assert "DLAUNCH_MESH" not in render(spec=replace(SPEC, mesh_given=False)).env


def test_gloo_gets_an_interface_only_where_it_needs_one() -> None:
    assert "GLOO_SOCKET_IFNAME" not in render().env
    assert render(replace(NODE, interface="eth0")).env["GLOO_SOCKET_IFNAME"] == "eth0"


def test_the_recorder_is_on_where_the_user_has_not_set_it() -> None:
    variables = rank_variables(render(), 5, 1)
    assert variables["TORCH_FR_BUFFER_SIZE"] == variables["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert variables["NCCL_DEBUG_FILE"] == "/jobs/j/ranks/5/attempt-3/nccl.log"
    assert "NCCL_DEBUG" not in rank_environment("/r", {"NCCL_DEBUG": "WARN"})


def test_secrets_are_masked() -> None:
    launch = render(settings=Settings(command_line_env={"HF_TOKEN": "hf_abc", "PROXY": "http://me:pw@proxy:1"}))
    shown = {v.name: v.shown for v in launch.environment}
    assert (shown["HF_TOKEN"], shown["PROXY"]) == (MASK, MASK)


def test_what_is_a_secret() -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MY_KEY", "pass"):
        assert is_secret(name), name
    for name in ("PWD", "KEYBOARD", "TOKENIZERS_PARALLELISM", "PATH", "MONKEY"):
        assert not is_secret(name), name
    assert masked({"A": "1", "TOKEN": "x"}) == {"A": "1", "TOKEN": MASK}


def test_debugging_leftovers_are_pointed_out() -> None:
    assert [line.split("=")[0] for line in leftovers({"NCCL_ALGO": "Ring", "HOME": "/"})] == ["NCCL_ALGO"]


@given(st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])), min_size=1, max_size=4))
def test_any_word_survives_the_shell(words: list[str]) -> None:
    line = quote(["printf", "%s\\0", *words])
    printed = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True).stdout
    assert printed.decode() == "".join(f"{word}\0" for word in words)
    assert shlex.split(line)[2:] == words
