"""`dlaunch`: the launcher's commands, each in a module of its own that is loaded when it is called."""

from __future__ import annotations

import click

from launcher.console import LazyGroup, run_group

COMMANDS = {
    "run": ("launcher.cli.run.run", "start a job and follow it"),
    "render": ("launcher.cli.render.render", "print what run would do, and change nothing"),
    "ps": ("launcher.cli.ps.ps", "list the jobs"),
    "top": ("launcher.cli.top.top", "show jobs and ranks live"),
    "logs": ("launcher.cli.logs.logs", "print the ranks' output"),
    "wait": ("launcher.cli.wait.wait", "wait for a job's end"),
    "stop": ("launcher.cli.stop.stop", "end a job on every host and prove it"),
    "nodes": ("launcher.cli.nodes.nodes", "show what the inventory's hosts have"),
    "preflight": ("launcher.cli.preflight.preflight", "check the hosts, then pairs, then the whole"),
    "topo": ("launcher.cli.topo.topo", "show the hardware as a tree and a matrix"),
    "place": ("launcher.cli.place.place", "show which rank goes where, and what that costs"),
    "plan": ("launcher.cli.plan.plan", "say which parallelism fits, how fast it is, and why"),
    "bench": ("launcher.cli.bench.bench", "measure the collectives of a cluster"),
    "completion": ("launcher.cli.completion.completion", "make a shell complete commands, jobs and clusters"),
}


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dlaunch", prog_name="dlaunch")
def dlaunch() -> None:
    """Start PyTorch distributed training on Slurm, on SSH hosts or on this machine, and follow it.

    JOB is a job's id or the beginning of it, its name (the newest of that name), a Slurm id, or `last`. Hosts are
    described in inventory.yaml; without one there are four simulated nodes on this machine.

    Example: dlaunch run workloads/hsdp.py --nodes 4
    """


def main() -> None:
    """Entry point of the `dlaunch` console script."""
    run_group(dlaunch)
