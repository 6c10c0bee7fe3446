"""`dlaunch stop`."""

from __future__ import annotations

import sys

import click

from launcher.cli.options import inventory_option, job_argument, json_option
from launcher.console import print_json


@click.command()
@job_argument
@click.option("--grace", type=click.FloatRange(0), default=30.0, help="Seconds for the ranks to write a checkpoint.")
@inventory_option
@json_option
def stop(job: str, grace: float, inventory: object, as_json: bool) -> None:
    """End JOB on every host, with a checkpoint where the script writes one, and prove that nothing is left.

    Example: dlaunch stop last
    """
    from launcher.jobs.control import stop as stop_job
    from launcher.jobs.store import find_job

    found = find_job(job)
    record = stop_job(found, grace)
    if as_json:
        print_json({"job": record.job, "state": record.state, "reason": record.reason})
    else:
        click.echo(f"{record.job}: {record.state}: {record.reason}")
        if record.unreached:
            click.echo(f"not reached: {', '.join(record.unreached)}; once they are, stop the job again", err=True)
    sys.exit(3 if record.unreached or "could not be" in record.reason else 0)
