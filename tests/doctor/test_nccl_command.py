"""`ddoctor nccl`: a log in words and as JSON, with the verdict's exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from doctor.cli.nccl import nccl

HEALTHY = """h7:411:438 [1] NCCL INFO NCCL version 2.24.3+cuda12.6
h7:411:438 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.0.0.7<0>
h7:411:438 [1] NCCL INFO comm 0x55a0 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 2000 commId 0x77aa - Init START
h7:411:438 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via SHM/direct/direct
h7:411:438 [1] NCCL INFO Connected all rings
h7:411:438 [1] NCCL INFO comm 0x55a0 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 2000 commId 0x77aa - Init COMPLETE
"""


def run(tmp_path: Path, text: str, *options: str) -> tuple[int, str]:
    (tmp_path / "nccl.log").write_text(text)
    result = CliRunner().invoke(nccl, [str(tmp_path / "nccl.log"), *options])
    return result.exit_code, result.output


def test_a_healthy_log_is_explained(tmp_path: Path) -> None:
    status, output = run(tmp_path, HEALTHY)
    assert status == 0
    assert "mlx5_0" in output and "2.24.3" in output and "through host memory" in output


def test_json_carries_statements_and_verdict(tmp_path: Path) -> None:
    status, output = run(tmp_path, HEALTHY + "h7:411:438 [1] NCCL WARN Failed to CUDA malloc 4194304 bytes\n", "--json")
    document = json.loads(output)
    assert status == 1 and document["schema"] == 1
    assert document["verdict"]["answer"] == "gpu.oom"
    assert {"topic", "what", "means", "where"} <= document["statements"][0].keys()


@pytest.mark.parametrize("gone", ["Init COMPLETE"])
def test_an_initialisation_that_did_not_complete_is_told(tmp_path: Path, gone: str) -> None:
    text = "".join(line for line in HEALTHY.splitlines(keepends=True) if gone not in line)
    assert "did not complete" in run(tmp_path, text)[1]
