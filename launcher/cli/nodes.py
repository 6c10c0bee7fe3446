"""`dlaunch nodes`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from launcher.cli.options import cluster_option, inventory_option, json_option
from launcher.console import print_json

if TYPE_CHECKING:
    from launcher.inventory import Cluster


@click.command()
@cluster_option
@inventory_option
@click.option(
    "--import",
    "hostfile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Print an inventory of the hosts in a DeepSpeed, MPI or PBS host file, and look at none.",
)
@json_option
def nodes(cluster: str | None, inventory: Path | None, hostfile: Path | None, as_json: bool) -> None:
    """Show what the hosts have: devices, NICs, versions, and who is free.

    Hosts that give no answer are listed with the reason. On Slurm the controller is asked, or, inside an allocation,
    its nodes themselves.

    Example: dlaunch nodes --cluster gpus
    """
    if hostfile is not None:
        show_import(hostfile, cluster or "hosts", as_json)
        return
    from launcher.common.text import printable
    from launcher.errors import CannotActError
    from launcher.inventory import load_inventory
    from launcher.preflight.nodes import table

    name, chosen = load_inventory(inventory)[0].cluster(cluster)
    rows = rows_of(chosen)
    if as_json:
        print_json({"cluster": name, "hosts": rows})
    else:
        click.echo(printable("\n".join(table(rows))))
    if not any(row["reachable"] for row in rows):
        click.echo(f"error: no host of {name} answers", err=True)
        sys.exit(CannotActError.exit_status)


def show_import(hostfile: Path, cluster: str, as_json: bool) -> None:
    from launcher.hostfile import import_hostfile

    hosts, text = import_hostfile(hostfile, cluster)
    if as_json:
        listed = [{"host": name, "user": slots.user, "slots": slots.count} for name, slots in hosts.items()]
        print_json({"cluster": cluster, "hosts": listed, "inventory": text})
    else:
        click.echo(text, nl=False)


def rows_of(cluster: Cluster) -> list[dict[str, Any]]:
    """One row a host, in the inventory's order."""
    from launcher.inventory import SlurmCluster
    from launcher.preflight.look import hosts_of, looked_at
    from launcher.preflight.nodes import answered, in_slurm, silent

    if isinstance(cluster, SlurmCluster) and "SLURM_JOB_ID" not in os.environ:
        from launcher.slurm.client import call
        from launcher.slurm.status import nodes_from_scontrol

        return [in_slurm(node) for node in nodes_from_scontrol(call(["scontrol", "show", "node", "--details"]))]
    with looked_at(cluster, hosts_of(cluster)) as sight:
        return [
            answered(sight.facts[host]) if host in sight.facts else silent(host, sight.silent[host].message)
            for host in sight.names
        ]
