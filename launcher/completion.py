"""What a shell may offer while a command is typed: jobs on record, and clusters of the inventory."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

PROGRAMS = ("dlaunch", "ddoctor")
NEWEST = 50  # jobs that are offered


def script(shell: str) -> str:
    """The lines that make `shell` (bash, zsh or fish) complete both programs."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    parts = []
    for program in PROGRAMS:
        complete = kind(None, {}, program, f"_{program.upper()}_COMPLETE")  # type: ignore[arg-type]  # only names it
        parts.append(complete.source_template % complete.source_vars())
    return "\n".join(parts)


def jobs(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """`last`, names and ids, the newest first; behind an id stands its state."""
    from launcher.jobs.store import all_jobs

    found = {"last": "the newest job"}
    with suppress(OSError):
        for job in reversed(all_jobs()[-NEWEST:]):
            found.setdefault(job.record.name, "the newest job of this name")
            found[job.record.job] = job.record.state
    return _items(found.items(), typed)


def jobs_and_files(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Jobs where some begin so, else files."""
    from click.shell_completion import CompletionItem

    return jobs(context, parameter, typed) or [CompletionItem(typed, type="file")]


def clusters(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of the inventory that `--inventory` names or that would be found."""
    from launcher.errors import DlaunchError
    from launcher.inventory import load_inventory

    given = context.params.get("inventory")
    try:
        loaded, _ = load_inventory(Path(given) if given else None)
    except (DlaunchError, OSError):
        return []
    return _items(((name, cluster.kind) for name, cluster in loaded.clusters.items()), typed)


def _items(values: Iterable[tuple[str, str]], typed: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(value, help=help) for value, help in values if value.startswith(typed)]
