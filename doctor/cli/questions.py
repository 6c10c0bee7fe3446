"""`ddoctor diagnose`, hang, straggler, mesh: one question each, over a job, a directory, an archive or files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from doctor.cli.target import evidence_of, interval_option, native_option, target_options
from doctor.diagnose import diagnose as judge
from doctor.rules import Question
from launcher.console import print_json


def _command(question: Question, summary: str, example: str) -> click.Command:
    @click.command(question, help=f"{summary}\n\nExample: {example}")
    @target_options
    @interval_option
    @native_option
    @click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a self-contained page too.")
    @click.option("--markdown", is_flag=True, help="Markdown, to paste into an issue.")
    def command(
        targets: tuple[str, ...],
        inventory: object,
        interval: float,
        attempt: int | None,
        native: bool,
        as_json: bool,
        html: Path | None,
        markdown: bool,
    ) -> None:
        evidence = evidence_of(targets, interval, native, attempt)
        verdict = judge(evidence, question)
        if html:
            from doctor.report.html import render as page

            html.write_text(page(verdict, evidence))
        if as_json:
            print_json(verdict.to_json())
        elif markdown:
            from doctor.report.markdown import render as text

            click.echo(text(verdict), nl=False)
        else:
            from doctor.report.terminal import render

            click.echo(render(verdict))
        sys.exit(verdict.exit_status)

    return command


diagnose = _command(
    "diagnose", "Say everything that the evidence shows, root cause first.", "ddoctor diagnose /shared/dumps --json"
)
hang = _command("hang", "Name the root cause of a hang, or say that nothing hangs.", "ddoctor hang last")
straggler = _command("straggler", "Say who is slow, since when, and why.", "ddoctor straggler last")
mesh = _command("mesh", "Say whether the mesh is where it should be.", "ddoctor mesh last")
