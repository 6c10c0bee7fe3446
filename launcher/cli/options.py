"""Options that several commands share: a job's for `run` and `render`, the inventory and `--json` for all."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from launcher import completion

F = TypeVar("F", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """click's own range lets `nan` and `inf` through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number to reckon with.", param, ctx)
        return number


AMOUNT = FiniteRange(min=0, min_open=True)

cluster_option = click.option(
    "--cluster",
    metavar="NAME",
    help="Cluster of the inventory; default: its `default`.",
    shell_complete=completion.clusters,
)
inventory_option = click.option(
    "--inventory", type=click.Path(path_type=Path), metavar="FILE", help="Default: ./inventory.yaml."
)
unneeded_inventory_option = click.option(
    "--inventory",
    type=click.Path(path_type=Path),
    metavar="FILE",
    expose_value=False,
    help="Not needed: the job's record knows its hosts.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
job_argument = click.argument("job", shell_complete=completion.jobs)

_JOB_OPTIONS = (  # all but the last are fields of launcher.jobs.request.RunRequest
    click.argument("script", shell_complete=lambda _context, _parameter, typed: [CompletionItem(typed, type="file")]),
    click.argument("args", nargs=-1, type=click.UNPROCESSED),
    cluster_option,
    inventory_option,
    click.option("--nodes", metavar="N|MIN:MAX", help="Number of nodes, or a range from which each attempt chooses."),
    click.option("--nproc-per-node", type=click.IntRange(1), metavar="N", help="Ranks on each node."),
    click.option("--mesh", metavar="AXIS=N,…", help="Mesh, outermost axis first, e.g. dp_replicate=4,tp=2."),
    click.option("--name", help="Name of the job; default: the script's."),
    click.option("--env", multiple=True, metavar="K=V", help="Variable for every rank; K alone takes the shell's."),
    click.option("--exclude", multiple=True, metavar="HOSTS", help="Hosts to leave out, e.g. gpu[03-04]."),
    click.option("--exclude-bad", is_flag=True, help="Only hosts that the last `dlaunch preflight` found good."),
    click.option("--max-restarts", type=click.IntRange(0), default=0, metavar="N", help="New attempts after failures."),
    click.option("--debug-collectives", is_flag=True, help="Check every collective (TORCH_DISTRIBUTED_DEBUG=DETAIL)."),
    click.option("--no-torchrun", is_flag=True, help="Start the ranks without torchrun: they read RANK and the like."),
    click.option("--sbatch", multiple=True, metavar="K=V", help="sbatch option over the entry's, e.g. time=2:00:00."),
    click.option("--sync", is_flag=True, help="Send the code to hosts that do not share this file system."),
    json_option,
)


def job_options(command: F) -> F:
    """Add the options of a job to a click command."""
    for option in reversed(_JOB_OPTIONS):
        command = option(command)
    return command
