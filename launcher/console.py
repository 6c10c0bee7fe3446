"""What all commands of both tools share: lazy loading, `--json`, errors as one line, exit statuses.

A command is a click command in a module of its own, imported only when it runs, so that `--help` stays quick.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from launcher.errors import DlaunchError, suggestion

INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose commands are `name: (dotted path of the click command, one-line help)`."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module, _, attribute = self.lazy[cmd_name][0].rpartition(".")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self.lazy.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.lazy and not name.startswith("-"):
            ctx.fail(f"no command {name!r}{suggestion(name, self.lazy)}")
        return super().resolve_command(ctx, args)


def print_json(document: Mapping[str, Any]) -> None:
    """Print the one JSON document of a `--json` call; `schema` comes first."""
    json.dump({"schema": 1, **document}, sys.stdout, default=str)
    sys.stdout.write("\n")


def run_group(group: click.Group) -> None:
    """Run `group` as a program: one line for each foreseen error, and the exit statuses of DESIGN §5."""
    try:
        status = group.main(standalone_mode=False)
    except click.exceptions.Exit as end:
        status = end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        status = 2
    except click.ClickException as error:
        status = report(error.format_message(), _hint(error), 2)
    except click.Abort:
        status = INTERRUPTED
    except KeyboardInterrupt:
        status = INTERRUPTED
    except DlaunchError as error:
        status = report(error.message, error.help, error.exit_status)
    except BrokenPipeError:
        sys.stderr.close()
        status = 0
    sys.exit(status if isinstance(status, int) else 0)


def report(message: str, help: str, status: int) -> int:
    """Print an error to stderr, with `--json` also to stdout, and return its exit status."""
    if "--json" in sys.argv:
        print_json({"error": message, "help": help})
    click.echo(f"error: {message}" + (f"\n  help: {help}" if help else ""), err=True)
    return status


def _hint(error: click.ClickException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{error.ctx.command_path} --help"
    return ""
