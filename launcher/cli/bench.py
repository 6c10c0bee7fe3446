"""`dlaunch bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from launcher.cli.options import cluster_option, inventory_option, json_option
from launcher.console import print_json

if TYPE_CHECKING:
    from launcher.planner.comm import Measured


@click.group()
def bench() -> None:
    """Measure a cluster.

    Example: dlaunch bench comm --cluster boxes
    """


@bench.command()
@cluster_option
@inventory_option
@click.option("--nodes", metavar="N", help="Number of nodes; default: all.")
@click.option("--nproc-per-node", type=click.IntRange(1), metavar="N", help="Ranks on each node.")
@click.option("--env", multiple=True, metavar="K=V", help="Variable for every rank, e.g. NCCL_ALGO=Ring.")
@click.option("--mesh", metavar="AXIS=N,…", help="Measure the groups of each axis of this mesh.")
@click.option("--sweep", is_flag=True, help="With NCCL also each NCCL_ALGO with each NCCL_PROTO.")
@click.option("--sync", is_flag=True, help="Send the code to hosts that do not share this file system.")
@click.option("--max-bytes", type=click.IntRange(1024), metavar="N", help="Largest size; default: 4 MiB, CUDA 1 GiB.")
@click.option(
    "--iterations", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="Calls per size."
)
@click.option(
    "--table", type=click.Path(path_type=Path), metavar="FILE", help="Read all_reduce_perf's output, and run nothing."
)
@click.option("--nccl-tests", is_flag=True, help="Run all_reduce_perf on the first host instead of a job of ours.")
@json_option
def comm(table: Path | None, nccl_tests: bool, as_json: bool, **options: Any) -> None:
    """Bandwidth of every collective over sizes, with fitted latency and bandwidth, which `dlaunch plan` then uses.

    Example: dlaunch bench comm --cluster boxes
    """
    from launcher.common.text import printable
    from launcher.planner.show_comm import lines

    found = _read(table) if table else _perf(options) if nccl_tests else _run(options)
    if options["sweep"] and found.backend != "nccl":
        click.echo(f"nothing to sweep: {found.backend} has no algorithms and protocols to choose", err=True)
    print_json(found.to_json()) if as_json else click.echo(printable("\n".join(lines(found))))


def _read(table: Path) -> Measured:
    from launcher.planner.comm import read_nccl_tests
    from launcher.topology.source import read_text

    return read_nccl_tests(read_text(table), str(table))


def _perf(options: dict[str, Any]) -> Measured:
    from launcher.planner.bench import nccl_tests

    return nccl_tests(options["cluster"], options["inventory"])


def _run(options: dict[str, Any]) -> Measured:
    from launcher.planner.bench import BenchRequest, measured

    return measured(BenchRequest(**options))
