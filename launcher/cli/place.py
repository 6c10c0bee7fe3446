"""`dlaunch place`."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.cli.options import AMOUNT, cluster_option, inventory_option, json_option
from launcher.console import print_json


@click.command()
@click.option("--mesh", required=True, metavar="AXIS=N,…", help="Mesh, outermost axis first, e.g. dp_shard=4,tp=2.")
@click.option(
    "--topo",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Saved output of nvidia-smi topo -m or its like, one for each host, instead of an inventory.",
)
@click.option(
    "--network",
    "switches",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Slurm's topology.conf or the output of scontrol show topology.",
)
@cluster_option
@inventory_option
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Nodes to use; one FILE stands for N equal hosts.")
@click.option("--nproc-per-node", type=click.IntRange(1), metavar="N", help="Ranks on each node; default: its devices.")
@click.option("--axes-free", is_flag=True, help="The script takes the order of axes from DLAUNCH_MESH: choose it too.")
@click.option(
    "--traffic",
    metavar="AXIS=BYTES[:CALLS],…|PRESET|JOB",
    help="Bytes (and all-reduces) per rank and step, e.g. tp=60e9:128; or a bundled model, e.g. 8B, whose table tells "
    "them; or a job whose recorder counted them.",
)
@click.option("--batch", type=click.IntRange(1), metavar="N", help="With a PRESET: global number of sequences.")
@click.option("--seq", type=click.IntRange(1), default=4096, metavar="N", help="With a PRESET: tokens per sequence.")
@click.option("--nics-per-node", type=click.IntRange(1), metavar="N", help="NICs that carry traffic between nodes.")
@click.option("--nic-gbps", type=AMOUNT, metavar="GBIT", help="Gbit/s of one NIC.")
@click.option("--exclude", multiple=True, metavar="HOST|DEVICE", help="Leave free: a host, GPU3, a UUID, or n1:GPU3.")
@json_option
def place(as_json: bool, **options: object) -> None:
    """Show which rank goes on which device, its cost against index order and lower bound, and what limits it.

    Example: dlaunch place --topo topo.txt --mesh tp=2
    """
    from launcher.common.text import printable
    from launcher.placement.request import PlaceRequest, placed
    from launcher.placement.show import lines

    answer = placed(PlaceRequest(**options))  # type: ignore[arg-type]
    if as_json:
        print_json(answer.to_json())
    else:
        click.echo(printable("\n".join(lines(answer))))
