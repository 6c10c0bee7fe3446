"""docs/schemas holds a JSON schema for every `--json` document, and what the commands really print keeps to it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from doctor.cli import COMMANDS as DOCTOR
from doctor.cli import ddoctor
from doctor.drills.run import Drill, Outcome, scoreboard
from launcher.cli import COMMANDS as LAUNCHER
from launcher.cli import dlaunch
from launcher.console import run_group
from launcher.jobs.record import Process
from launcher.jobs.slurm_foreign import ForeignRank

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs" / "examples"
SCHEMAS: Mapping[str, Any] = {
    path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "docs" / "schemas").glob("*.json"))
}
REGISTRY: Registry[Any] = Registry().with_resources(
    (f"{name}.json", Resource.from_contents(schema, default_specification=DRAFT202012))
    for name, schema in SCHEMAS.items()
)
PLAN = ["plan", "--preset", "7B", "--batch", "32", "--device-type", "h100-80g", "--nodes", "2"]
TRACE = "trace.pftrace"
SAY = """\
import json, os, time
with open(os.environ["DLAUNCH_PROGRESS"], "a") as progress:
    for step in range(3):
        progress.write(json.dumps({"step": step, "time": time.time(), "step_s": 0.1, "loss": 1.0 / (step + 1)}) + "\\n")
print("said", flush=True)
"""


def check(name: str, document: Any) -> None:
    errors = Draft202012Validator(SCHEMAS[name], registry=REGISTRY).iter_errors(document)
    assert not [f"{error.json_path}: {error.message}" for error in errors]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one small real job on record, that has succeeded."""
    path = tmp_path_factory.mktemp("schemas")
    (path / "say.py").write_text(SAY)
    check(
        "dlaunch-run", call(path, "dlaunch", "run", "say.py", "--nodes", "1", "--nproc-per-node", "1", "--name", "say")
    )
    return path


def call(folder: Path, *argv: str, status: int = 0) -> Any:
    """The document that a command prints with `--json`; it must end with `status`."""
    words = list(argv)
    words.insert(3 if words[1] == "bench" else 2, "--json")
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setenv("DLAUNCH_HOME", str(folder / "home"))
        patch.chdir(folder)
        patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            run_group({"dlaunch": dlaunch, "ddoctor": ddoctor}[words[0]])
    assert end.value.code == status, err.getvalue() + out.getvalue()
    document = json.loads(out.getvalue())
    assert next(iter(document)) == "schema"
    return document


DOCUMENTS = [
    ("dlaunch-run", 0, "dlaunch wait say"),
    ("dlaunch-render", 0, "dlaunch render say.py --nodes 2"),
    ("dlaunch-render", 0, "dlaunch run --dry-run say.py"),
    ("dlaunch-ps", 0, "dlaunch ps"),
    ("dlaunch-logs", 0, "dlaunch logs say --rank 0"),
    ("dlaunch-stop", 0, "dlaunch stop say"),
    ("dlaunch-top", 0, "dlaunch top say --once"),
    ("dlaunch-nodes", 0, "dlaunch nodes"),
    ("dlaunch-nodes-import", 0, f"dlaunch nodes --import {EXAMPLES}/hostfile"),
    ("dlaunch-topo", 0, f"dlaunch topo {EXAMPLES}/n1.txt"),
    ("dlaunch-topo", 0, "dlaunch topo"),
    ("dlaunch-place", 0, f"dlaunch place --topo {EXAMPLES}/n1.txt --mesh tp=2"),
    ("dlaunch-place", 0, "dlaunch place --mesh dp_shard=4 --nodes 2 --nproc-per-node 2"),
    ("dlaunch-plan", 0, f"dlaunch {' '.join(PLAN)} --what-if nodes=4"),
    ("dlaunch-preflight", 0, "dlaunch preflight --quick --nodes 1"),
    ("dlaunch-bench-comm", 0, f"dlaunch bench comm --table {EXAMPLES}/all_reduce_perf.txt"),
    ("dlaunch-completion", 0, "dlaunch completion bash"),
    ("ddoctor-verdict", 1, f"ddoctor hang {EXAMPLES}/hang.tar.gz"),
    ("ddoctor-verdict", 1, f"ddoctor diagnose {EXAMPLES}/nccl.log"),
    ("ddoctor-verdict", 1, f"ddoctor straggler {EXAMPLES}/nccl.log"),
    ("ddoctor-verdict", 3, f"ddoctor mesh {EXAMPLES}/nccl.log"),
    ("ddoctor-nccl", 1, f"ddoctor nccl {EXAMPLES}/nccl.log"),
    ("ddoctor-stacks", 0, f"ddoctor stacks {EXAMPLES}/hang.tar.gz"),
    ("ddoctor-timeline", 0, f"ddoctor timeline {EXAMPLES}/hang.tar.gz -o {TRACE}"),
    ("ddoctor-compare", 0, f"ddoctor compare {EXAMPLES}/hang.tar.gz say"),
    ("ddoctor-collect", 0, "ddoctor collect say -o bundle.tar.gz"),
    ("error", 2, "dlaunch logs nobody"),
    ("error", 2, "dlaunch run say.py --nodes 0"),
    ("error", 2, "ddoctor hang nobody"),
    ("error", 2, "dlaunch top say --replay say.py"),
]
COVERED_BELOW = {("ddoctor", "drill")}


@pytest.mark.parametrize(("schema", "status", "line"), DOCUMENTS, ids=[line.split("/")[0] for *_, line in DOCUMENTS])
def test_a_document_keeps_to_its_schema(schema: str, status: int, line: str, folder: Path) -> None:
    check(schema, call(folder, *line.split(), status=status))


def test_every_command_is_among_them() -> None:
    seen = {tuple(line.split()[:2]) for *_, line in DOCUMENTS} | COVERED_BELOW
    assert seen | {("dlaunch", "run")} == {("dlaunch", name) for name in LAUNCHER} | {
        ("ddoctor", name) for name in DOCTOR
    }


def test_the_scoreboard_of_drills() -> None:
    """Built from an outcome: a drill itself takes a real job."""
    outcome = Outcome(Drill("stop", "ddp", 1), "hang.absent_rank", [1], True, True, 2.5)
    check("ddoctor-drill", json.loads(json.dumps({"schema": 1, **scoreboard([outcome])})))


def test_the_ranks_of_a_foreign_job() -> None:
    rank = ForeignRank(0, 0, 1, Process("n1", 17, 1.0), "train.py", None, "n1:29500")
    check(
        "dlaunch-ps-slurm", {"schema": 1, "job": "slurm:7", "state": "RUNNING", "ranks": [asdict(rank)], "missing": []}
    )


def test_the_progress_of_a_rank(folder: Path) -> None:
    (file,) = (folder / "home").glob("jobs/*/ranks/0/attempt-0/progress.jsonl")
    for line in file.read_text().splitlines():
        check("progress", json.loads(line))


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one_and_is_listed(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert f"schemas/{name}.json" in (ROOT / "docs" / "json.md").read_text()


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_refuses_what_is_not_its_document(name: str) -> None:
    assert not Draft202012Validator(SCHEMAS[name], registry=REGISTRY).is_valid({"schema": 1})
