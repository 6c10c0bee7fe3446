"""`dlaunch completion`."""

from __future__ import annotations

import click

from launcher.cli.options import json_option
from launcher.console import print_json

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
def completion(shell: str, as_json: bool) -> None:
    """Print what makes SHELL complete commands, options, jobs and clusters of dlaunch and ddoctor.

    Put it into the shell's start-up file: `eval "$(dlaunch completion bash)"`, the same with zsh, or
    `dlaunch completion fish | source`.

    Example: eval "$(dlaunch completion bash)"
    """
    from launcher.completion import script

    print_json({"shell": shell, "script": script(shell)}) if as_json else click.echo(script(shell))
