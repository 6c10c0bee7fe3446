"""`dlaunch wait`."""

from __future__ import annotations

import sys

import click

from launcher.cli.options import job_argument, json_option, unneeded_inventory_option


@click.command()
@job_argument
@unneeded_inventory_option
@json_option
def wait(job: str, as_json: bool) -> None:
    """Follow JOB to its end, adopting it where its supervisor is gone. Exit status 0 if it succeeded, else 1.

    Example: dlaunch wait last
    """
    from launcher.cli.run import follow_to_end
    from launcher.jobs.store import find_job

    sys.exit(follow_to_end(find_job(job), as_json, output=False))
