"""Shell completion: the scripts that shells load, and what is offered for jobs and clusters."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from doctor.cli import ddoctor
from launcher.cli import dlaunch
from launcher.cli.completion import SHELLS
from launcher.common.paths import JobPaths
from launcher.completion import script
from launcher.jobs.record import JobRecord, write_record


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two jobs on record, and an inventory of two clusters in the present folder."""
    monkeypatch.setenv("DLAUNCH_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("hsdp", "tp")):
        record = JobRecord(f"{name}-1", name, "local", "local", "succeeded", float(number), {}, {"dp_replicate": 1})
        write_record(JobPaths(tmp_path / "jobs" / record.job).record, record)
    (tmp_path / "inventory.yaml").write_text(
        "default: here\nclusters:\n  here: {kind: local}\n  boxes: {kind: ssh, hosts: [n1]}\n"
    )
    return tmp_path


def offered(group: click.Group, *words: str, typed: str = "") -> list[str]:
    found = ShellComplete(group, {}, "program", "_PROGRAM_COMPLETE").get_completions(list(words), typed)
    return [item.value for item in found]


def test_jobs_are_offered_by_name_and_id_the_newest_first(records: Path) -> None:
    assert offered(dlaunch, "logs") == ["last", "tp", "tp-1", "hsdp", "hsdp-1"]
    assert offered(dlaunch, "stop", typed="h") == ["hsdp", "hsdp-1"]
    assert offered(ddoctor, "hang", typed="tp-") == ["tp-1"]
    assert offered(ddoctor, "compare", "tp-1", typed="hs") == ["hsdp", "hsdp-1"]


def test_clusters_are_those_of_the_inventory(records: Path) -> None:
    assert offered(dlaunch, "run", "--cluster") == ["here", "boxes"]
    (records / "other.yaml").write_text("default: far\nclusters:\n  far: {kind: local}\n")
    assert offered(dlaunch, "nodes", "--inventory", "other.yaml", "--cluster") == ["far"]
    (records / "inventory.yaml").write_text("clusters: [")
    assert offered(dlaunch, "run", "--cluster") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_one_that_its_shell_reads(shell: str, tmp_path: Path) -> None:
    text = script(shell)
    assert "_DLAUNCH_COMPLETE" in text and "_DDOCTOR_COMPLETE" in text
    if program := shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([program, "-n", str(tmp_path / "script")], check=True)


def test_bash_completes_a_command() -> None:
    folder = Path(sys.executable).parent
    typed = 'COMP_WORDS=(dlaunch pre); COMP_CWORD=1; _dlaunch_completion dlaunch; echo "${COMPREPLY[@]}"'
    argv = ["bash", "-c", f'PATH={folder}:$PATH; eval "$(dlaunch completion bash)"; {typed}']
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "preflight"
