"""`dlaunch ps`."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from launcher.cli.options import inventory_option, json_option
from launcher.common.text import printable
from launcher.console import print_json
from launcher.errors import InputError
from launcher.inventory_file import slurm_clusters
from launcher.jobs.record import ENDED
from launcher.jobs.store import StoredJob, all_jobs, visible_state


@click.command()
@click.argument("slurm_job", metavar="[slurm:ID]", required=False)
@click.option("--sudo", is_flag=True, help="Look at the processes of another user's Slurm job.")
@click.option("--all", "-a", "everything", is_flag=True, help="Ended jobs too, beyond the newest ten.")
@inventory_option
@json_option
def ps(slurm_job: str | None, sudo: bool, everything: bool, inventory: Path | None, as_json: bool) -> None:
    """List the jobs on record, the newest last; of a Slurm job that dlaunch did not start, its ranks.

    Example: dlaunch ps
    """
    if slurm_job is not None:
        sys.exit(show_ranks(slurm_job, sudo, as_json))
    jobs, foreign = jobs_now(inventory)
    if as_json:
        print_json({"jobs": [row(job) for job in jobs] + foreign})
        return
    ended = [job for job in jobs if job.record.state in ENDED]
    shown = jobs if everything else [job for job in jobs if job.record.state not in ENDED or job in ended[-10:]]
    rows = [row(job) for job in shown] + foreign
    if not rows:
        click.echo("no jobs; start one with: dlaunch run SCRIPT")
        return
    width = max(len(entry["job"]) for entry in rows)
    click.echo(f"{'JOB':{width}}  {'CLUSTER':10} {'STATE':13} {'NODES':>5} {'RANKS':>5} {'STARTED':>11}  REASON")
    for entry in rows:
        started = time.strftime("%d %b %H:%M", time.localtime(entry["started"])) if entry["started"] else "-"
        click.echo(
            f"{entry['job']:{width}}  {entry['cluster']:10} {entry['state']:13} {entry['nodes'] or '?':>5} "
            f"{entry['ranks'] or '?':>5} {started:>11}  {entry['reason']}"
        )


def show_ranks(slurm_job: str, sudo: bool, as_json: bool) -> int:
    """Print where the ranks of a foreign job are; exit status 3 where that is not known of all of them."""
    from launcher.jobs.slurm_foreign import find_foreign

    if not slurm_job.removeprefix("slurm:").isdigit():
        raise InputError(f"{slurm_job!r} is no Slurm job", where="JOB", help="for example dlaunch ps slurm:1234")
    found = find_foreign(slurm_job, sudo)
    if as_json:
        ranks = [asdict(rank) for rank in found.ranks]
        print_json({"job": found.job, "state": found.status.state.name, "ranks": ranks, "missing": found.missing})
        return 3 if found.missing else 0
    for rank in found.ranks:
        started = time.strftime("%d %b %H:%M:%S", time.localtime(rank.process.start_time))
        place = f"{rank.process.host}  pid {rank.process.pid}  since {started}  {rank.device or 'no device named'}"
        click.echo(printable(f"rank {rank.rank:4}  {place}  {rank.script}"))
    for line in found.missing:
        click.echo(printable(f"unknown: {line}"))
    return 3 if found.missing else 0


def jobs_now(inventory: Path | None) -> tuple[list[StoredJob], list[dict[str, Any]]]:
    """The jobs on record, and rows for the user's other jobs in Slurm's queue: one squeue for all."""
    jobs = all_jobs()
    if shutil.which("squeue") is None:
        return jobs, []
    clusters = slurm_clusters(inventory)
    living = [job for job in jobs if job.record.kind == "slurm" and job.record.state not in ENDED]
    if not clusters and not living:
        return jobs, []
    from launcher.jobs.slurm_control import foreign_rows, refresher

    known = refresher()
    known.refresh(living)
    if known.trouble:
        click.echo(f"warning: {known.trouble}; states of Slurm jobs may be old", err=True)
    foreign = foreign_rows(known, jobs, clusters[0] if len(clusters) == 1 else "slurm")
    return all_jobs() if living else jobs, foreign


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
