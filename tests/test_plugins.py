"""The package that docs/extend.md shows, installed as shown, in the real commands; and packages that are broken."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.jobs.record import write_record
from tests.support.dlaunch import BIN, Dlaunch
from tests.support.installed import install
from tests.tui.test_feeds import record_of

PAGE = Path(__file__).parents[1] / "docs/extend.md"
BROKEN = """
[dlaunch.rules]
gone = nothing_such_anywhere:RULES
raises = acme_broken:RULES
wrong = acme_broken:find
[dlaunch.checks.of_host]
gone = nothing_such_anywhere:check
raises = acme_broken:find
[dlaunch.checks.of_all]
wrong = acme_broken:NAME
[dlaunch.topology]
gone = nothing_such_anywhere:VENDOR
raises = acme_broken:VENDOR
wrong = acme_broken:SPOILING
"""
RAISING = """
from doctor.rules import Rule
from launcher.topology.vendors import Vendor
NAME = "no function"
def find(looked_at):
    raise KeyError("rack")
RULES = (Rule(("mesh.acme",), ("straggler", "mesh"), find),)
VENDOR = Vendor("no-such-smi", {}, read=lambda text, host: 1 // 0)
SPOILING = Vendor("no-such-smi", {"links": "show 'links"})
"""


def shown(head: str) -> str:
    """The block of the page below the line that ends so."""
    below = PAGE.read_text().split(f"{head}:\n\n", 1)[1]
    return textwrap.dedent(re.match(r"(?:(?: {4}.*)?\n)+", below)[0])  # type: ignore[index]


def as_entry_points(project: str) -> str:
    """The part of pyproject.toml that pip writes into entry_points.txt."""
    groups = project[project.index("[project.entry-points") :]
    return re.sub(r'\[project\.entry-points\."(.+)"\]', r"[\1]", groups).replace('"', "")


@pytest.fixture
def dlaunch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dlaunch:
    """With both packages on the path of every command."""
    packages = tmp_path / "packages"
    points = as_entry_points(shown("Its `pyproject.toml`"))
    install(packages, "acme-dlaunch", points, {"acme_dlaunch": shown("and all of its module, `acme_dlaunch.py`")})
    install(packages, "acme-broken", BROKEN, {"acme_broken": RAISING})
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    return Dlaunch(tmp_path / "home", tmp_path)


def job_over(hosts: Sequence[str], folder: Path) -> str:
    """A job's record with a rank on each of `hosts`."""
    record = record_of(folder, len(hosts), 1)
    ranks = [replace(rank, host=host) for rank, host in zip(record.ranks, hosts, strict=True)]
    write_record(folder / "job.json", record.with_(ranks=ranks))
    return str(folder)


def test_the_rule_of_the_docs_judges_a_job(dlaunch: Dlaunch, tmp_path: Path) -> None:
    verdict = dlaunch.doctor("straggler", job_over(["r1n01", "r2n01"], tmp_path / "job"))
    assert (verdict["answer"], verdict["findings"][0]["cause"]) == (
        "mesh.acme_racks",
        "The job spans the racks r1, r2.",
    )


def test_the_doctor_names_what_is_broken_and_answers_as_without_it(dlaunch: Dlaunch, tmp_path: Path) -> None:
    argv = [str(BIN / "ddoctor"), "mesh", job_over(["r1n01", "r1n01"], tmp_path / "job"), "--json"]
    done = subprocess.run(argv, env=dlaunch.env, capture_output=True, text=True, timeout=60)
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["answer"], done.stderr) == (0, "none", "")
    assert [(one["code"], one["severity"]) for one in verdict["findings"]] == [("plugin.failed", "info")] * 3
    causes = " ".join(one["cause"] for one in verdict["findings"])
    assert "'gone' of acme-broken 1.0 (dlaunch.rules) failed: ModuleNotFoundError" in causes
    assert "'raises' of acme-broken 1.0 (dlaunch.rules) failed: KeyError: 'rack'" in causes
    assert "'wrong' of acme-broken 1.0 (dlaunch.rules) failed: TypeError: it must be a tuple" in causes


def test_preflight_asks_the_check_of_the_docs_and_says_what_broken_ones_do_not_see(dlaunch: Dlaunch) -> None:
    (host,) = dlaunch.json("preflight", "--quick", status=1)["hosts"]
    found, unseen = (" ".join(one["cause"] for one in host[kind]) for kind in ("findings", "unknown"))
    assert "NCCL guesses its interface on localhost." in found and "broken" not in found
    assert "what 'gone' of acme-broken 1.0 (dlaunch.checks.of_host) would find: ModuleNotFoundError" in unseen
    assert "what 'raises' of acme-broken 1.0 (dlaunch.checks.of_host) would find: KeyError" in unseen
    assert "what 'wrong' of acme-broken 1.0 (dlaunch.checks.of_all) would find: TypeError" in unseen


def test_the_vendor_of_the_docs_is_asked_and_read(
    dlaunch: Dlaunch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "acme-smi"
    tool.write_text('#!/bin/sh\n[ "$*" = "show --links" ] && echo "acme0 - acme1: 4 lanes"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    host = dlaunch.json("topo")["hosts"][0]
    assert host["links"] == [{"a": "acme0", "b": "acme1", "kind": "NV", "count": 4}] and host["components"] == [[0, 1]]
    assert "'gone' of acme-broken 1.0 (dlaunch.topology) failed: ModuleNotFoundError" in " ".join(host["gaps"])


def test_a_file_that_no_plugin_reads_is_read_by_ours(dlaunch: Dlaunch) -> None:
    (host,) = dlaunch.json("topo", str(PAGE.parent / "examples/n1.txt"))["hosts"]
    gaps = " ".join(host["gaps"])
    assert len(host["devices"]) == 4 and host["links"]
    assert "'raises' of acme-broken 1.0 (dlaunch.topology) failed: ZeroDivisionError" in gaps
    assert "'wrong' of acme-broken 1.0 (dlaunch.topology) failed: ValueError: No closing quotation" in gaps


def test_help_does_not_look_for_plugins() -> None:
    code = "import sys; import launcher.cli, doctor.cli\nprint('importlib.metadata' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
