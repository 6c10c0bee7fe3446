"""`dlaunch topo`."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.cli.options import cluster_option, inventory_option, json_option
from launcher.console import print_json


@click.command()
@click.argument("where", required=False, metavar="[HOST|FILE]")
@cluster_option
@inventory_option
@json_option
def topo(where: str | None, cluster: str | None, inventory: Path | None, as_json: bool) -> None:
    """Show the hardware as a tree of domains and a matrix of links; unknown things are named.

    FILE is the saved output of nvidia-smi topo -m or its like, or Slurm's topology. Without an argument all hosts of
    the cluster are asked.

    Example: dlaunch topo n1
    """
    from launcher.common.text import printable
    from launcher.topology.show import document, host_lines, network_lines, tree_lines
    from launcher.topology.source import network_document, network_in, topologies_in, topologies_of

    file = Path(where) if where and Path(where).is_file() else None
    network = network_in(file) if file else None
    if network:
        hosts = []
    else:
        hosts = topologies_in(file) if file else topologies_of([where] if where else [], cluster, inventory)
    if as_json:
        print_json({**document(hosts), **(network_document(network) if network else {})})
        return
    lines = (
        network_lines(network) if network else [*tree_lines(hosts), *(x for host in hosts for x in host_lines(host))]
    )
    click.echo(printable("\n".join(lines)))
