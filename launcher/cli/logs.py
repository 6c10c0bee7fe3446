"""`dlaunch logs`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from launcher.cli.options import inventory_option, job_argument, json_option
from launcher.console import print_json
from launcher.errors import InputError

if TYPE_CHECKING:
    from launcher.hosts.protocol import Host
    from launcher.jobs.record import JobRecord, RankRecord

POLL_S = 0.3


@click.command()
@job_argument
@click.option("--rank", "ranks", metavar="LIST", help="Ranks, e.g. 3,5-7; default: all.")
@click.option("--node", type=click.IntRange(0), metavar="N", help="Ranks of one node.")
@click.option("--coord", metavar="AXIS=I,…", help="Ranks at a mesh coordinate, e.g. tp=0.")
@click.option("--follow", "-f", is_flag=True, help="Go on as the job does, until it ends.")
@click.option("--grep", metavar="REGEX", help="Only lines in which REGEX is found.")
@inventory_option
@json_option
def logs(
    job: str,
    ranks: str | None,
    node: int | None,
    coord: str | None,
    follow: bool,
    grep: str | None,
    inventory: object,
    as_json: bool,
) -> None:
    """Print the output of JOB's ranks, each line behind host:rank:coordinate; what many say alike stands once.

    Example: dlaunch logs last --rank 0-3 --grep loss
    """
    from launcher.jobs.output import Selection, labelled, tails
    from launcher.jobs.record import ENDED, read_record
    from launcher.jobs.store import find_job

    pattern = compile_pattern(grep)
    found = find_job(job)
    chosen = Selection.parse(ranks, node, coord).of(found.record)
    records = {rank.rank: rank for rank in found.record.ranks}
    hosts = reach(found.record, chosen)
    sources = tails(found.record, chosen, hosts)
    collected: dict[int, list[str]] = {rank: [] for rank in sources}
    try:
        while True:
            over = not follow or read_record(found.paths.record).state in ENDED
            fresh = {rank: [line for tail in files for line in tail.lines(over)] for rank, files in sources.items()}
            if as_json:
                for rank, lines in fresh.items():
                    collected[rank] += [line for line in lines if pattern is None or pattern.search(line)]
            else:
                for text in labelled(fresh, records, pattern):
                    click.echo(text)
            if any(fresh.values()):
                continue
            if over:
                break
            time.sleep(POLL_S)
    finally:
        for host in hosts.values():
            host.close()
    if as_json:
        print_json({"job": found.record.job, "ranks": [{"rank": r, "lines": lines} for r, lines in collected.items()]})


def reach(record: JobRecord, ranks: Sequence[RankRecord]) -> dict[str, Host]:
    """The hosts of `ranks` that answer; why the others do not is told. Raises CannotActError where none does."""
    from launcher.jobs.reach import connect_each

    answers = connect_each(list(dict.fromkeys(rank.host for rank in ranks)), record.addresses)
    if not answers.good:
        return answers.whole()
    for error in answers.failed.values():
        click.echo(f"warning: {error.message}", err=True)
    return answers.good


def compile_pattern(grep: str | None) -> re.Pattern[str] | None:
    """Raises InputError for a pattern that is none."""
    try:
        return None if grep is None else re.compile(grep)
    except re.error as error:
        raise InputError(f"{grep!r} is no regular expression: {error}", where="--grep") from error
