"""`dlaunch run`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from launcher.cli.options import job_options
from launcher.console import INTERRUPTED, print_json
from launcher.errors import DlaunchError

if TYPE_CHECKING:
    from launcher.jobs.store import StoredJob


@click.command()
@job_options
@click.option("--detach", is_flag=True, help="Start the job and return.")
@click.option("--dry-run", is_flag=True, help="Print what would be done (as `dlaunch render`), and start nothing.")
def run(as_json: bool, detach: bool, dry_run: bool, **options: Any) -> None:
    """Start SCRIPT as a job and follow it. The script's own arguments stand after `--`.

    Example: dlaunch run workloads/hsdp.py --nodes 4 -- --steps 50
    """
    from launcher.jobs.control import start
    from launcher.jobs.explain import plan_lines, rendered
    from launcher.jobs.prepare import prepare
    from launcher.jobs.request import RunRequest
    from launcher.jobs.result import summary

    prepared = prepare(RunRequest(**options))
    if dry_run:
        print_json(rendered(prepared)) if as_json else click.echo("\n".join(plan_lines(prepared)))
        return
    for line in plan_lines(prepared):
        click.echo(line, err=as_json)
    job = start(prepared)
    if detach:
        if as_json:
            print_json(summary(job.record, [], []))
        else:
            click.echo(f"started; follow it with: dlaunch logs -f {job.record.job}")
        return
    sys.exit(follow_to_end(job, as_json, output=True))


def follow_to_end(job: StoredJob, as_json: bool, output: bool) -> int:
    """Follow a job, print how it ended, and return the exit status of `run` and `wait`."""
    from launcher.jobs.follow import Follower
    from launcher.jobs.result import describe, losses, read_statuses, summary

    try:
        record = Follower(job, as_json, output).follow()
    except click.Abort:
        return INTERRUPTED
    statuses, told = read_statuses(record, job.paths), list[float]()
    try:
        told = losses(record, statuses)
    except DlaunchError as error:  # the job's end is known even if its hosts are not reached any more
        click.echo(f"warning: {error}", err=True)
    document = summary(record, statuses, told)
    print_json(document) if as_json else click.echo("\n".join(describe(record, document)))
    return 0 if record.state == "succeeded" else 1
