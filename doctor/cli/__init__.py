"""`ddoctor`: the doctor's commands, each in a module of its own that is loaded when it is called."""

from __future__ import annotations

import click

from launcher.console import LazyGroup, run_group

COMMANDS: dict[str, tuple[str, str]] = {}


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dlaunch", prog_name="ddoctor")
def ddoctor() -> None:
    """Say why a distributed training job hangs, is slow, or sits on the wrong devices.

    Example: ddoctor hang last
    """


def main() -> None:
    """Entry point of the `ddoctor` console script."""
    run_group(ddoctor)
