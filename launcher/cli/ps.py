"""`dlaunch ps`."""

from __future__ import annotations

import time
from typing import Any

import click

from launcher.cli.options import inventory_option, json_option
from launcher.console import print_json
from launcher.jobs.record import ENDED
from launcher.jobs.store import StoredJob, all_jobs, visible_state


@click.command()
@click.option("--all", "-a", "everything", is_flag=True, help="Ended jobs too, beyond the newest ten.")
@inventory_option
@json_option
def ps(everything: bool, inventory: object, as_json: bool) -> None:
    """List the jobs on record, the newest last.

    Example: dlaunch ps
    """
    jobs = all_jobs()
    if as_json:
        print_json({"jobs": [row(job) for job in jobs]})
        return
    ended = [job for job in jobs if job.record.state in ENDED]
    shown = jobs if everything else [job for job in jobs if job.record.state not in ENDED or job in ended[-10:]]
    rows = [row(job) for job in shown]
    if not rows:
        click.echo("no jobs; start one with: dlaunch run SCRIPT")
        return
    width = max(len(entry["job"]) for entry in rows)
    click.echo(f"{'JOB':{width}}  {'CLUSTER':10} {'STATE':13} {'NODES':>5} {'RANKS':>5} {'STARTED':>11}  REASON")
    for entry in rows:
        started = time.strftime("%d %b %H:%M", time.localtime(entry["started"])) if entry["started"] else "-"
        click.echo(
            f"{entry['job']:{width}}  {entry['cluster']:10} {entry['state']:13} {entry['nodes']:>5} "
            f"{entry['ranks']:>5} {started:>11}  {entry['reason']}"
        )


def row(job: StoredJob) -> dict[str, Any]:
    """One job of the contract's document."""
    record = job.record
    return {
        "job": record.job,
        "name": record.name,
        "cluster": record.cluster,
        "state": visible_state(job),
        "nodes": len(record.nodes),
        "ranks": len(record.ranks),
        "started": record.started,
        "reason": record.reason,
    }
