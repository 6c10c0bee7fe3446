"""Which hosts a job takes, and which devices its ranks get there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.agent.shim import rank_environment
from launcher.errors import InputError
from launcher.inventory import Cluster, parse_inventory
from launcher.jobs.devices import assign_on_hosts, assign_on_one_machine, hosts_to_take
from launcher.render import NodePlan, placement_environment
from launcher.spec import JobSpec, MeshSpec
from launcher.topology import HostTopology, Link
from tests.launcher.placement.hosts import host, uniform_host

LEAVES = {"n1": "a", "n2": "b", "n3": "a", "n4": "b"}
PAIRS = [[("NV", 4) if abs(a - b) == 2 else ("SYS", 1) for b in range(4)] for a in range(4)]


def cluster(switches: bool) -> Cluster:
    entries = [{"name": name, "switch": leaf} if switches else name for name, leaf in LEAVES.items()]
    text = f"default: lab\nclusters:\n  lab:\n    kind: ssh\n    user: root\n    hosts: {entries}\n"
    return parse_inventory(text.replace("'", '"'), "inventory.yaml").clusters["lab"]


def job(nodes: int, nproc: int, mesh: str, script: str = "train.py") -> JobSpec:
    return JobSpec("t", script, (), nodes, nproc, MeshSpec.parse(mesh))


def plan(name: str, node_rank: int) -> NodePlan:
    return NodePlan(node_rank, name, "/j", "python3", "/b", "/w")


def test_a_job_takes_neighbours_where_the_inventory_tells_them() -> None:
    spec = job(2, 1, "dp_shard=2")
    assert hosts_to_take(spec, cluster(switches=False), list(LEAVES)) == ["n1", "n2"]
    assert hosts_to_take(spec, cluster(switches=True), list(LEAVES)) == ["n1", "n3"]
    assert hosts_to_take(spec, cluster(switches=True), ["n2", "n3", "n4"]) == ["n2", "n4"]


def test_each_node_gets_its_devices_by_uuid_and_each_rank_its_binding() -> None:
    topologies = {"n1": host("n1", PAIRS), "n2": uniform_host("n2", 4)}
    placed = assign_on_hosts(job(2, 4, "dp_shard=4,tp=2"), [plan("n1", 0), plan("n2", 1)], topologies)
    (first,) = [node for node in placed.nodes if node.host == "n1"]
    assert first.devices == ("GPU-n1-0", "GPU-n1-2", "GPU-n1-1", "GPU-n1-3")
    assert [(b.local_rank, b.handle) for b in first.bindings] == list(enumerate(first.devices))
    assert placement_environment(first)["CUDA_VISIBLE_DEVICES"] == ",".join(first.devices)


def test_each_rank_is_told_its_nearest_nic() -> None:
    nics = [Link(f"GPU{d}", f"mlx5_{n}", "PIX" if d // 2 == n else "SYS") for d in range(4) for n in range(2)]
    near = uniform_host("n1", 4, nics=2)
    placed = assign_on_hosts(job(1, 4, "tp=4"), [plan("n1", 0)], {"n1": replace(near, links=(*near.links, *nics))})
    environment = {**placement_environment(placed.nodes[0]), "LOCAL_RANK": "2"}
    assert rank_environment("/r", environment)["DLAUNCH_NIC"] == "mlx5_1"


def test_simulated_nodes_share_the_devices_of_this_machine() -> None:
    placed = assign_on_one_machine(job(2, 2, "dp_shard=2,tp=2"), [plan("a", 0), plan("b", 1)], host("here", PAIRS))
    assert [node.devices for node in placed.nodes] == [("GPU-here-0", "GPU-here-2"), ("GPU-here-1", "GPU-here-3")]
    assert [[b.local_rank for b in node.bindings] for node in placed.nodes] == [[0, 1], [0, 1]]


def test_a_host_with_too_few_free_devices_is_named() -> None:
    whole = uniform_host("n2", 4)
    busy = replace(whole, devices=tuple(replace(device, busy=device.index < 2) for device in whole.devices))
    with pytest.raises(InputError, match="n2 has 2 free devices for 4 ranks"):
        assign_on_hosts(job(2, 4, "tp=8"), [plan("n1", 0), plan("n2", 1)], {"n1": uniform_host("n1", 4), "n2": busy})


def test_without_devices_ranks_are_bound_where_there_are_several_numa_nodes() -> None:
    one, two = HostTopology("n1", numa_cpus={0: "0-7"}), HostTopology("n2", numa_cpus={0: "0-3", 1: "4-7"})
    placed = assign_on_hosts(job(2, 2, "dp_shard=4"), [plan("n1", 0), plan("n2", 1)], {"n1": one, "n2": two})
    assert "DLAUNCH_CPUS" not in placement_environment(placed.nodes[0])
    assert placement_environment(placed.nodes[1])["DLAUNCH_CPUS"] == "[[0, 1, 2, 3], [4, 5, 6, 7]]"
