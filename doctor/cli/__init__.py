"""`ddoctor`: the doctor's commands, each in a module of its own that is loaded when it is called."""

from __future__ import annotations

import click

from launcher.console import LazyGroup, run_group

COMMANDS: dict[str, tuple[str, str]] = {
    "diagnose": ("doctor.cli.questions.diagnose", "everything that the evidence shows, root cause first"),
    "hang": ("doctor.cli.questions.hang", "root cause of a hang (also: nothing hangs)"),
    "straggler": ("doctor.cli.questions.straggler", "who is slow, since when, and why"),
    "mesh": ("doctor.cli.questions.mesh", "is the mesh where it should be"),
    "stacks": ("doctor.cli.stacks.stacks", "one merged tree of all ranks' stacks"),
    "nccl": ("doctor.cli.nccl.nccl", "explain NCCL and watchdog logs of any job"),
    "timeline": ("doctor.cli.timeline.timeline", "all ranks' collectives as a Perfetto trace"),
    "compare": ("doctor.cli.compare.compare", "what changed between runs"),
    "collect": ("doctor.cli.collect.collect", "a bundle to keep or to send"),
    "drill": ("doctor.cli.drill.drill", "inject faults, diagnose, score"),
}


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dlaunch", prog_name="ddoctor")
def ddoctor() -> None:
    """Say why a distributed training job hangs, is slow, or sits on the wrong devices.

    JOB is a job's id or the beginning of it, its name, `last`, or slurm:ID of a job that dlaunch did not start. DIR is
    any folder, archive or file of evidence, from any job. Exit status: 0 nothing wrong, 1 a finding, 3 unknown.

    Example: ddoctor hang last
    """


def main() -> None:
    """Entry point of the `ddoctor` console script."""
    run_group(ddoctor)
