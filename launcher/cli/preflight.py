"""`dlaunch preflight`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher.cli.options import cluster_option, inventory_option, json_option
from launcher.console import print_json

if TYPE_CHECKING:
    from launcher.inventory import Cluster


@click.command()
@cluster_option
@inventory_option
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Only the first N hosts.")
@click.option("--hosts", multiple=True, metavar="HOSTS", help="Only these hosts, e.g. gpu[01-04].")
@click.option("--exclude", multiple=True, metavar="HOSTS", help="Hosts to leave out.")
@click.option("--quick", is_flag=True, help="Check only: no products, no collectives.")
@click.option("--accept", is_flag=True, help="What the hosts have now is right: compare with it from now on.")
@json_option
def preflight(
    cluster: str | None,
    inventory: Path | None,
    nodes: int | None,
    hosts: tuple[str, ...],
    exclude: tuple[str, ...],
    quick: bool,
    accept: bool,
    as_json: bool,
) -> None:
    """Check every host, then pairs, then all together; a verdict for each host, and how to put right what is wrong.

    The result is kept for 12 hours: `dlaunch run --exclude-bad` takes only the hosts that were found good. Exit status:
    0 nothing found, 1 a warning or an error, 3 a host could not be looked at.

    On Slurm, outside of a job, an allocation of whole nodes is asked for and given back.

    Example: dlaunch preflight --cluster gpus
    """
    from launcher.common.text import printable
    from launcher.hosts.names import expand
    from launcher.inventory import load_inventory
    from launcher.preflight.result import lines
    from launcher.preflight.run import Wish
    from launcher.preflight.run import preflight as check
    from launcher.slurm.borrow import borrowed

    loaded, file = load_inventory(inventory)
    name, chosen = loaded.cluster(cluster)
    with borrowed(chosen, [host for text in hosts for host in expand(text)], nodes):
        wanted = chosen_hosts(chosen, hosts, exclude)[:nodes]
        result = check(Wish(name, chosen, file, wanted, quick, accept, lambda text: click.echo(text, err=True)))
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(printable("\n".join(lines(result))))
    sys.exit(result.exit_status)


def chosen_hosts(cluster: Cluster, only: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """The cluster's hosts in their order, or those of `only`. Raises InputError for a name that it has not."""
    from launcher.errors import InputError
    from launcher.hosts.names import among
    from launcher.preflight.look import hosts_of

    known = hosts_of(cluster)
    left_out = among(exclude, known, "--exclude")
    left = [name for name in among(only, known, "--hosts") or known if name not in left_out]
    if not left:
        raise InputError("no host is left", where="--exclude", help="dlaunch nodes")
    return list(dict.fromkeys(left))
