"""On a real Slurm: nodes in the order of the switches, and on each node the devices that the plan gives its ranks."""

from __future__ import annotations

import json
import os

import pytest

from tests.lab.fake_nvidia_smi import install, matrix
from tests.launcher.slurm.conftest import LEAVES, Bench, Job

pytestmark = [pytest.mark.lab, pytest.mark.timeout(200)]

CROSSED, NEXT = {(0, 2): "NV4", (1, 3): "NV4"}, {(0, 1): "NV4", (2, 3): "NV4"}
LINKS = {"n1": CROSSED, "n2": NEXT, "n3": NEXT, "n4": CROSSED}
SAY = """
import json, os, pathlib, sys, time
here = pathlib.Path(os.environ["DLAUNCH_DIR"], "nodes", os.environ["DLAUNCH_NODE_RANK"], "agent.json")
devices, local = os.environ["CUDA_VISIBLE_DEVICES"].split(","), int(os.environ["LOCAL_RANK"])
print(os.uname().nodename, devices[local], flush=True)
deadline = time.monotonic() + 60
while json.loads(here.read_text())["ranks"][local]["device"] is None:  # its agent has not seen it yet
    assert time.monotonic() < deadline
    time.sleep(0.05)
"""


def test_ranks_land_on_the_devices_and_leaves_of_the_plan(bench: Bench) -> None:
    tools = bench.folder / "tools"
    for node, links in LINKS.items():
        devices = [{"index": i, "uuid": f"GPU-{node}-{i}", "pci.bus_id": f"00000000:0{i + 1}:00.0"} for i in range(4)]
        install(tools, matrix(4, links), devices, host=node)
    bench.inventory(nodes=4, nproc_per_node=4, gpus_per_node=4)
    script = bench.folder / "say.py"
    script.write_text(SAY)
    path = f"{tools}:{bench.lab.path}:{os.environ['PATH']}"
    started = bench.lab.run_on_login(
        ["dlaunch", "run", "--detach", "--json", "--no-torchrun", str(script), "--mesh", "dp_shard=8,tp=2"],
        env={**bench.env, "PATH": path},
        cwd=bench.folder,
    )
    job = Job(bench, json.loads(started.stdout)["job"])
    ended = job.wait()
    assert (ended["state"], ended["findings"]) == ("succeeded", []), ended
    said = [job.output(rank)[0].split() for rank in range(16)]
    nodes = list(dict.fromkeys(node for node, _ in said))
    assert [set(nodes[:2]), set(nodes[2:])] in ([set(LEAVES[0]), set(LEAVES[1])], [set(LEAVES[1]), set(LEAVES[0])])
    for first, second in zip(said[::2], said[1::2], strict=True):
        pair = tuple(sorted(int(device[-1]) for _, device in (first, second)))
        assert first[0] == second[0] and pair in LINKS[first[0]], (first, second)
    assert [entry["shown"]["device"] for entry in ended["bindings"]] == [device for _, device in said]
