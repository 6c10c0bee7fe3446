"""Bandwidths by the definitions of nccl-tests, the fit, and the benchmark as a real job."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.errors import InputError
from launcher.placement.cluster import Network
from launcher.placement.measured import Measured, MeasuredLink
from launcher.planner.cluster import device_type, probed_nodes, with_measured
from launcher.planner.comm import Measured as Answer
from launcher.planner.comm import Sample, bus_factor, fastest, fit, read_lines, read_nccl_tests
from launcher.planner.show_comm import lines
from launcher.topology.model import HostTopology
from tests.lab.fake_nvidia_smi import install, matrix
from tests.support.dlaunch import Dlaunch

TABLE = """\
# nThread 1 nGpus 8 minBytes 1048576 maxBytes 268435456 step: 16(factor) warmup iters: 5 iters: 20
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    30.50   34.38   60.16      0    30.40   34.49   60.36      0
    16777216       4194304     float     sum      -1    92.41  181.55  317.71      0    92.30  181.77  318.09      0
   268435456      67108864     float     sum      -1   1082.6  247.95  433.92      0   1081.9  248.11  434.20      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 270.6
"""


@pytest.mark.parametrize(
    ("op", "factor"),
    [
        ("all_reduce", 1.75),
        ("all_gather", 0.875),
        ("reduce_scatter", 0.875),
        ("all_to_all", 0.875),
        ("gather", 0.875),
        ("scatter", 0.875),
        ("broadcast", 1),
        ("reduce", 1),
        ("send", 1),
    ],
)
def test_bus_bandwidth_is_algorithm_bandwidth_times_the_factor(op: str, factor: float) -> None:
    sample = Sample("world", op, 8, 10**9, 0.01)
    assert bus_factor(op, 8) == factor
    assert sample.algbw == 100
    assert sample.busbw == 100 * factor


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "send"])
@pytest.mark.parametrize("members", [2, 8])
def test_a_fit_finds_what_made_the_times(op: str, members: int) -> None:
    alpha, gbps = 5e-6, 300.0
    messages = {"all_reduce": 2 * (members - 1), "all_gather": members - 1, "send": 1}[op]
    samples = [
        Sample("world", op, members, size, messages * alpha + bus_factor(op, members) * size / (gbps * 1e9))
        for size in (1 << 10, 1 << 16, 1 << 22, 1 << 30)
    ]
    found = fit(samples)
    assert found is not None
    assert found.alpha == pytest.approx(alpha)
    assert found.gbps == pytest.approx(gbps)
    assert found.residual == pytest.approx(0, abs=1e-9)
    assert found.crossover == pytest.approx(messages * alpha * gbps * 1e9 / bus_factor(op, members))


def test_noise_shows_in_the_residual_and_latency_is_never_negative() -> None:
    samples = [
        Sample("world", "send", 2, size, seconds) for size, seconds in ((1000, 1e-6), (2000, 4e-6), (4000, 6e-6))
    ]
    found = fit(samples)
    assert found is not None
    assert found.alpha == 0
    assert 0.05 < found.residual < 1


def test_one_size_or_a_falling_time_has_no_fit() -> None:
    one = Sample("world", "send", 2, 1000, 1e-3)
    assert fit([one]) is None
    assert fit([one, replace(one, bytes=2000, seconds=1e-5)]) is None


def test_lines_of_the_script_among_others() -> None:
    record = {"scope": "inside", "members": 2, "op": "send", "bytes": 1024, "seconds": 1e-3}
    lines = ["hello", json.dumps(record), json.dumps({**record, "op": "gather", "seconds": None, "refused": "no"})]
    found = read_lines(lines)
    assert found.samples == [Sample("inside", "send", 2, 1024, 1e-3)]
    assert found.refused == {"gather": "no"}


def test_a_table_of_all_reduce_perf() -> None:
    found = read_nccl_tests(TABLE, "table")
    assert {each.members for each in found.samples} == {8}
    assert found.samples[-1].busbw == pytest.approx(433.92, rel=1e-3)
    (fitted,) = found.fits
    assert 400 < fitted.gbps < 500


@pytest.mark.parametrize(("hosts", "scope"), [(["n1"] * 8, "inside"), ([f"n{i}" for i in range(8)], "between")])
def test_the_scope_of_a_table_follows_from_its_hosts(hosts: list[str], scope: str) -> None:
    ranks = "".join(f"#  Rank {i:2} Group  0 Pid  77 on {host} device  0 [0x1b] H100\n" for i, host in enumerate(hosts))
    assert {sample.scope for sample in read_nccl_tests(ranks + TABLE, "table").samples} == {scope}


def test_a_file_without_a_table() -> None:
    with pytest.raises(InputError, match="no rows"):
        read_nccl_tests("nothing", "table")


def test_the_planner_takes_measured_links() -> None:
    hosts = [HostTopology("n0"), HostTopology("n1")]
    machine = probed_nodes(hosts, 4, device_type("h100-80g"), Network())
    measured = Measured(MeasuredLink(2e-6, 250.0, 4), MeasuredLink(9e-6, 40.0, 2))
    found = with_measured(machine, measured)
    assert (found.gbps("tp", 1, 4), found.gbps("dp_replicate", 4, 2), found.gbps("dp_shard", 1, 8)) == (250, 40, 160)
    assert [found.alpha(stride, members) for stride, members in ((1, 4), (4, 2), (1, 8))] == [2e-6, 9e-6, 9e-6]
    assert with_measured(machine, Measured()) is machine


def test_a_sweep_names_the_quickest_pair_for_each_size_and_no_gain_where_there_is_none() -> None:
    def samples(*seconds: float) -> list[Sample]:
        return [Sample("inside", "all_reduce", 8, size, s) for size, s in zip((1024, 1 << 20), seconds, strict=True)]

    sweep = {("Ring", "LL"): samples(5e-6, 9e-4), ("Tree", "Simple"): samples(8e-6, 2e-4)}
    found = Answer(samples(1e-5, 2e-4), {}, "nccl", sweep)
    assert [(variant, other.seconds) for _, variant, other in fastest(found)] == [
        (("Ring", "LL"), 5e-6),
        (("Tree", "Simple"), 2e-4),
    ]
    shown = "\n".join(lines(found))
    assert "Ring with LL, 2.00 times as fast as NCCL's choice" in shown and "no gain over NCCL's choice" in shown


PERF = """#!/bin/sh
[ "$*" = "-b 1K -e 1G -f 4 -g 8" ] || {{ echo "unknown option" >&2; exit 1; }}
cat {table}
"""


def test_all_reduce_perf_runs_where_it_is_and_is_kept_for_the_planner(
    dlaunch: Dlaunch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, matrix(8, {}, other="NV18"), [{"index": i, "uuid": f"GPU-{i}"} for i in range(8)])
    (tmp_path / "table").write_text(TABLE)
    program = tmp_path / "all_reduce_perf"
    program.write_text(PERF.format(table=tmp_path / "table"))
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    found = json.loads(dlaunch.run("bench", "comm", "--nccl-tests", "--json", env={"PATH": path}).stdout)
    assert {sample["scope"] for sample in found["samples"]} == {"inside"} and found["backend"] == "nccl"
    (kept,) = (dlaunch.home / "comm").glob("local-*.json")
    assert json.loads(kept.read_text())["fits"] == found["fits"]
    program.unlink()
    missing = dlaunch.run("bench", "comm", "--nccl-tests", env={"PATH": path})
    assert missing.returncode == 3 and "nccl-tests builds it" in missing.stderr


def test_the_benchmark_runs_as_a_job_and_the_planner_reads_what_it_kept(dlaunch: Dlaunch) -> None:
    done = dlaunch.run(
        "bench", "comm", "--nodes", "2", "--nproc-per-node", "2", "--max-bytes", "16384", "--iterations", "2", "--json"
    )
    found = json.loads(done.stdout)
    assert found["schema"] == 1
    assert {sample["scope"] for sample in found["samples"]} == {"inside", "between", "world"}
    assert {sample["op"] for sample in found["samples"]} | set(found["refused"]) == {
        "barrier",
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "broadcast",
        "reduce",
        "gather",
        "scatter",
        "send",
    }
    assert all(sample["seconds"] > 0 for sample in found["samples"])
    (kept,) = (dlaunch.home / "comm").glob("local-*.json")
    fit = {"op": "all_reduce", "members": 2, "gbps": 1.0, "alpha": 1e-4}
    fits = [{**fit, "scope": scope} for scope in ("inside", "between")]
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "fits": fits}))
    plan = dlaunch.run("plan", "--preset", "debug", "--tflops", "0.05", "--device-gb", "2", "--devices-per-node", "2")
    assert "as `dlaunch bench comm` measured them" in plan.stdout
