"""The topology under a job: which rank sits on which device, and the link that limits each axis."""

from __future__ import annotations

from dataclasses import replace

from launcher.jobs.record import JobRecord, RankRecord
from launcher.render import NodePlan
from launcher.topology.model import HostTopology
from tests.launcher.placement.hosts import host
from tui.feed.job import job_info
from tui.feed.simulated import simulated_job
from tui.hardware import host_text, limits, topology_lines
from tui.snapshot import JobInfo

NV, SYS = ("NV", 18), ("SYS", 1)
KINDS = [[SYS, SYS, NV, SYS], [SYS, SYS, SYS, NV], [SYS] * 4, [SYS] * 4]  # NVLink between 0 and 2, 1 and 3


def job(*devices: int) -> JobInfo:
    """Two hosts of four ranks, on these devices of each."""
    simulated = simulated_job({"dp_replicate": 2, "dp_shard": 2, "tp": 2}, 4)
    return replace(simulated, devices=[f"GPU-{name}-{device}" for name in simulated.hosts for device in devices])


def asked(shown: JobInfo) -> list[HostTopology]:
    """Their hardware, busy with the job."""
    bare = [host(name, KINDS) for name in shown.hosts]
    return [replace(one, devices=tuple(replace(device, busy=True) for device in one.devices)) for one in bare]


def test_each_axis_is_limited_by_the_link_that_its_ranks_really_use() -> None:
    good = job(0, 2, 1, 3)
    tp, shard, replicate = limits(good, asked(good))
    assert tp.startswith("⚠ tp: GPU0-GPU2 NV18 gives ranks 0-1 ")
    assert "⚠ dp_shard: GPU0-GPU1 SYS" in shard and "network between n1 and n2" in replicate
    bad = job(0, 1, 2, 3)
    assert "⚠ tp: GPU0-GPU1 SYS gives ranks 0-1" in limits(bad, asked(bad))[0]


def test_an_axis_that_leaves_the_hosts_that_were_asked_says_so() -> None:
    shown = job(0, 2, 1, 3)
    assert limits(shown, asked(shown)[:1])[2] == "⚠ dp_replicate: reaches hosts that were not asked"
    assert limits(replace(shown, mesh={}), asked(shown)) == []


def test_ranks_stand_on_their_devices() -> None:
    shown = job(0, 2, 1, 3)
    assert host_text(shown, asked(shown)[0])[-1] == "placement: GPU0 rank 0  GPU1 rank 2  GPU2 rank 1  GPU3 rank 3"


def test_hosts_without_accelerators_are_limited_by_their_memory() -> None:
    shown = replace(job(0, 1, 2, 3), devices=[None] * 8)
    bare = [replace(one, devices=(), links=()) for one in asked(shown)]
    assert "memory of n1" in limits(shown, bare)[0]


def test_hosts_that_do_not_answer_say_so_in_their_place() -> None:
    nobody = {"address": "127.0.0.1", "port": 1}
    record = JobRecord(
        "job",
        "job",
        "boxes",
        "ssh",
        "running",
        0.0,
        {},
        {"dp_replicate": 2},
        [NodePlan(node, name, "/jobs/job", "python3", "", "/") for node, name in enumerate(("n1", "n2"))],
        [RankRecord(rank, rank, 0, f"n{rank + 1}", {"dp_replicate": rank}) for rank in range(2)],
        addresses={name: {"name": name, **nobody} for name in ("n1", "n2")},
    )
    lines = topology_lines(record, job_info(record), ["n1", "n2", "n1"])
    assert lines[0] == "⚠ dp_replicate: reaches hosts that were not asked"
    assert [line[:4] for line in lines[1:] if line] == ["n1: ", "n2: "]
