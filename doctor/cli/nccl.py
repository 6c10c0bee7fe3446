"""`ddoctor nccl`: explain NCCL and watchdog logs of any job, and say what is wrong in them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from launcher.cli.options import json_option
from launcher.console import print_json


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path))
@json_option
def nccl(files: tuple[Path, ...], as_json: bool) -> None:
    """Explain NCCL and watchdog logs: rings, NICs, GPUDirect, what it means, what is wrong.

    Example: ddoctor nccl nccl.*.log
    """
    from doctor.diagnose import diagnose
    from doctor.discover import discover
    from doctor.report.nccl import explain

    evidence = discover(files)
    statements = explain(evidence)
    verdict = diagnose(evidence)
    if as_json:
        print_json({"statements": [one.to_json() for one in statements], "verdict": verdict.to_json()})
    else:
        from doctor.report.terminal import render

        for one in statements:
            click.echo(f"{one.topic}: {one.what}\n    {one.means}{f'  [{one.where}]' if one.where else ''}")
        click.echo(("\n" if statements else "") + render(verdict))
    sys.exit(verdict.exit_status)
