"""`dlaunch logs`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from launcher.cli.options import job_argument, json_option, unneeded_inventory_option
from launcher.console import print_json
from launcher.errors import InputError

if TYPE_CHECKING:
    from launcher.hosts.protocol import Host
    from launcher.jobs.output import OutputTail
    from launcher.jobs.record import JobRecord, RankRecord
    from launcher.jobs.store import StoredJob

POLL_S = 0.3


@click.command()
@job_argument
@click.option("--rank", "ranks", metavar="LIST", help="Ranks, e.g. 3,5-7; default: all.")
@click.option("--node", type=click.IntRange(0), metavar="N", help="Ranks of one node.")
@click.option("--coord", metavar="AXIS=I,…", help="Ranks at a mesh coordinate, e.g. tp=0.")
@click.option("--follow", "-f", is_flag=True, help="Go on as the job does, until it ends.")
@click.option("--grep", metavar="REGEX", help="Only lines in which REGEX is found.")
@unneeded_inventory_option
@json_option
def logs(
    job: str,
    ranks: str | None,
    node: int | None,
    coord: str | None,
    follow: bool,
    grep: str | None,
    as_json: bool,
) -> None:
    """Print the output of JOB's ranks, each line behind host:rank:coordinate; what many say alike stands once.

    Example: dlaunch logs last --rank 0-3 --grep loss
    """
    from launcher.jobs.output import Selection, labelled, tails
    from launcher.jobs.store import find_job

    pattern = compile_pattern(grep)
    found = find_job(job)
    chosen = Selection.parse(ranks, node, coord).of(found.record)
    records = {rank.rank: rank for rank in chosen}
    hosts = reach(found.record, chosen)
    said: dict[int, list[str]] = {rank.rank: [] for rank in chosen if rank.host in hosts}
    try:
        for fresh in new_lines(found, tails(found.record, chosen, hosts), follow):
            wanted = {rank: [line for line in lines if pattern.search(line)] for rank, lines in fresh.items()}
            if as_json:
                for rank, lines in wanted.items():
                    said[rank] += lines
            else:
                for text in labelled(wanted, records):
                    click.echo(text)
    finally:
        for host in hosts.values():
            host.close()
    if as_json:
        print_json({"job": found.record.job, "ranks": [{"rank": r, "lines": lines} for r, lines in said.items()]})


def new_lines(
    job: StoredJob, files: Mapping[int, Sequence[OutputTail]], follow: bool
) -> Iterator[dict[int, list[str]]]:
    """What each rank has written since the look before; with `follow` until the job has ended."""
    from launcher.jobs.record import ENDED, read_record

    while True:
        over = not follow or read_record(job.paths.record).state in ENDED
        fresh = {rank: [line for tail in tails for line in tail.lines(over)] for rank, tails in files.items()}
        if any(fresh.values()):
            yield fresh
        elif over:
            return
        else:
            time.sleep(POLL_S)


def reach(record: JobRecord, ranks: Sequence[RankRecord]) -> dict[str, Host]:
    """The hosts of `ranks` that answer; why the others do not is told. Raises CannotActError where none does."""
    from launcher.jobs.reach import connect_each

    answers = connect_each(list(dict.fromkeys(rank.host for rank in ranks)), record.addresses)
    if not answers.good:
        return answers.whole()
    for error in answers.failed.values():
        click.echo(f"warning: {error.message}", err=True)
    return answers.good


def compile_pattern(grep: str | None) -> re.Pattern[str]:
    """Without one, what is found in every line. Raises InputError for a pattern that is none."""
    try:
        return re.compile(grep or "")
    except re.error as error:
        raise InputError(f"{grep!r} is no regular expression: {error}", where="--grep") from error
