"""`dlaunch render`."""

from __future__ import annotations

from typing import Any

import click

from launcher.cli.options import job_options
from launcher.console import print_json


@click.command()
@job_options
def render(as_json: bool, **options: Any) -> None:
    """Print what `run` would execute: commands, environment with its origin, mesh map. Changes nothing.

    Example: dlaunch render workloads/hsdp.py --nodes 4
    """
    from launcher.jobs.explain import rendered, rendered_lines
    from launcher.jobs.prepare import prepare
    from launcher.jobs.request import RunRequest

    prepared = prepare(RunRequest(**options))
    if as_json:
        print_json(rendered(prepared))
    else:
        click.echo("\n".join(rendered_lines(prepared)))
