"""`ddoctor drill`: inject faults into small real jobs, diagnose them, print the score."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from launcher.cli.options import cluster_option, inventory_option, json_option
from launcher.console import print_json
from launcher.errors import InputError


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME…]")
@click.option("--workload", "workloads", multiple=True, metavar="NAME", help="Default: ddp. May be repeated.")
@cluster_option
@inventory_option
@click.option("--nodes", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Number of nodes.")
@click.option(
    "--nproc-per-node", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Ranks on each node."
)
@click.option("--list", "only_list", is_flag=True, help="Print the drills and start nothing.")
@json_option
def drill(
    names: tuple[str, ...],
    workloads: tuple[str, ...],
    cluster: str | None,
    inventory: Path | None,
    nodes: int,
    nproc_per_node: int,
    only_list: bool,
    as_json: bool,
) -> None:
    """Run the workloads' faults (all, or those NAMEd; `healthy` is one) as real jobs and score the doctor.

    Example: ddoctor drill stop slow_data --workload ddp
    """
    from doctor.drills.run import carry_out, cells, scoreboard
    from doctor.drills.table import EXPECTED

    unknown = set(names) - {*EXPECTED, "healthy"}
    if unknown:
        raise InputError(f"no drill {', '.join(sorted(unknown))}", where="NAME", help="ddoctor drill --list")
    outcomes = []
    for one in cells(names, workloads or ("ddp",), nproc_per_node):
        if only_list:
            click.echo(f"{one.fault:20} {one.workload:8} → {' or '.join(one.expectation.codes)}")
            continue
        outcome = carry_out(one, cluster, inventory, nodes, nproc_per_node)
        outcomes.append(outcome)
        mark = "right" if outcome.right else "WRONG"
        told = f"{outcome.answer} {list(outcome.ranks)}"
        cause = "" if outcome.right else f"  {outcome.error or (outcome.detail or {}).get('cause', '')}"
        click.echo(f"{one.fault:20} {one.workload:8} {mark}  {outcome.seconds:5.1f} s  {told}{cause}", err=as_json)
    if only_list:
        return
    board = scoreboard(outcomes)
    if as_json:
        print_json(board)
    else:
        click.echo(f"score: {board['score']}")
    sys.exit(0 if all(one.right for one in outcomes) else 1)
