"""JOB|DIR…: what the doctor's commands look at, as an EvidenceSet."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from doctor.discover import discover
from doctor.evidence import EvidenceSet
from launcher import completion
from launcher.cli.options import inventory_option, json_option

F = TypeVar("F", bound=Callable[..., Any])

interval_option = click.option(
    "--interval", type=click.FloatRange(0), default=3.0, metavar="S", help="Between two looks at a job."
)
attempt_option = click.option(
    "--attempt", type=click.IntRange(0), metavar="N", help="What a JOB's attempt N left, before it was restarted."
)
native_option = click.option("--native", is_flag=True, help="Native frames too (py-spy --native): slower.")
_TARGETS = (
    click.argument("targets", nargs=-1, required=True, metavar="JOB|DIR…", shell_complete=completion.jobs_and_files),
    inventory_option,
    attempt_option,
    json_option,
)


def target_options(command: F) -> F:
    """The arguments and options of all commands that look at jobs or at files."""
    for option in reversed(_TARGETS):
        command = option(command)
    return command


def evidence_of(
    targets: Sequence[str], interval: float = 3.0, native: bool = False, attempt: int | None = None
) -> EvidenceSet:
    """Read directories, archives and files; look at a job that is named by its id, name, or `last`.

    Raises InputError for what is neither, and for an attempt that a job has not made.
    """
    paths = [Path(target) for target in targets if is_path(target)]
    jobs = [target for target in targets if not is_path(target)]
    if not jobs:
        return discover(paths)
    from doctor.collect import Options, collect_named

    with tempfile.TemporaryDirectory(prefix="ddoctor-") as scratch:
        for number, name in enumerate(jobs):
            folder = Path(scratch, str(number))
            for line in collect_named(name, folder, Options(2, interval, native=native, attempt=attempt)).missing:
                click.echo(f"warning: {line}", err=True)
            paths.append(folder)
        return discover(paths)


def is_path(target: str) -> bool:
    """Whether a target means files: what exists as a path, unless it is the word `last`."""
    return target != "last" and ("/" in target or Path(target).exists())
