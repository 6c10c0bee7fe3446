"""`ddoctor compare`: what changed between runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import click

from doctor.cli.target import evidence_of
from launcher import completion
from launcher.cli.options import inventory_option, json_option
from launcher.console import print_json
from launcher.errors import InputError


@click.command()
@click.argument(
    "targets", nargs=-1, required=True, metavar="JOB|DIR JOB|DIR…", shell_complete=completion.jobs_and_files
)
@inventory_option
@json_option
def compare(targets: tuple[str, ...], inventory: object, as_json: bool) -> None:
    """Tell what changed between two runs; over three or more sizes also how the job scales.

    Example: ddoctor compare hsdp-yesterday hsdp-today
    """
    from doctor.compare import Run, differences, document, run_of, scaling_of

    if len(targets) < 2:
        raise InputError("one run has nothing to be compared with", where="JOB", help="ddoctor compare JOB JOB")
    runs = [run_of(target, evidence_of([target], 0.0)) for target in targets]
    if as_json:
        print_json(document(runs))
        return
    for before, after in itertools.pairwise(runs):
        said = differences(before, after)
        click.echo(f"{before.name} → {after.name}: " + ("" if said else "no noticeable change"))
        for line in said:
            click.echo(f"  {line}")
    scaling = scaling_of(runs)
    if scaling is not None:
        sizes: Sequence[Run] = sorted(runs, key=lambda run: run.ranks)
        told = ", ".join(f"{run.ranks} ranks {scaling.efficiency(run.ranks):.0%}" for run in sizes)
        click.echo(
            f"scaling: contention {scaling.contention:.4f}, coherency {scaling.coherency:.6f}; efficiency {told}"
        )
