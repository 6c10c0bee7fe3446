"""diagnose, hang, straggler, mesh: one question each, over a directory, an archive or files of evidence."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from doctor.diagnose import diagnose as judge
from doctor.discover import discover
from doctor.rules import Question
from launcher.console import print_json


def _command(question: Question, summary: str, example: str) -> click.Command:
    @click.command(question, help=f"{summary}\n\nExample: {example}")
    @click.argument("paths", nargs=-1, required=True, metavar="DIR…", type=click.Path(path_type=Path))
    @click.option("--json", "as_json", is_flag=True, help="one JSON document on stdout")
    def command(paths: tuple[Path, ...], as_json: bool) -> None:
        verdict = judge(discover(paths), question)
        if as_json:
            print_json(verdict.to_json())
        else:
            for finding in verdict.findings:
                click.echo(f"{finding.code}: {finding.cause}")
        sys.exit(verdict.exit_status)

    return command


diagnose = _command(
    "diagnose", "Say everything that the evidence shows, root cause first.", "ddoctor diagnose /shared/dumps --json"
)
hang = _command("hang", "Name the root cause of a hang, or say that nothing hangs.", "ddoctor hang /shared/dumps")
straggler = _command("straggler", "Say who is slow, since when, and why.", "ddoctor straggler /shared/dumps")
mesh = _command("mesh", "Say whether the mesh is where it should be.", "ddoctor mesh /shared/dumps")
