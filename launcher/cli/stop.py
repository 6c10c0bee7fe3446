"""`dlaunch stop`."""

from __future__ import annotations

import sys

import click

from launcher.cli.options import FiniteRange, job_argument, json_option, unneeded_inventory_option
from launcher.console import print_json
from launcher.errors import CannotActError


@click.command()
@job_argument
@click.option(
    "--grace", type=FiniteRange(0), default=30.0, show_default=True, metavar="S", help="For saving and ending."
)
@unneeded_inventory_option
@json_option
def stop(job: str, grace: float, as_json: bool) -> None:
    """End JOB on every host, with a checkpoint where the script writes one, and prove that nothing is left.

    Example: dlaunch stop last
    """
    from launcher.jobs.control import stop as stop_job
    from launcher.jobs.result import left_behind
    from launcher.jobs.store import find_job

    found = find_job(job)
    record = stop_job(found, grace)
    left = {"unreached": list(record.unreached), "survivors": list(record.survivors)}
    if as_json:
        print_json({"job": record.job, "state": record.state, "reason": record.reason, **left})
    else:
        click.echo(f"{record.job}: {record.state}: {record.reason}")
        for line in left_behind(record):
            click.echo(line, err=True)
    sys.exit(CannotActError.exit_status if any(left.values()) else 0)
