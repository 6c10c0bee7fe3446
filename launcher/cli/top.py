"""`dlaunch top`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click

from launcher import completion
from launcher.cli.options import FiniteRange, json_option, unneeded_inventory_option
from launcher.console import print_json
from launcher.errors import CannotActError, InputError

EXCLUDING = {
    "JOB": ("--replay",),
    "--once": ("--serve", "--metrics", "--record", "--on-hang"),
    "--serve": ("--metrics", "--record", "--on-hang"),  # each page would record and run the command
    "--metrics": ("--record",),
}


@click.command()
@click.argument("job", required=False, shell_complete=completion.jobs_and_files)
@click.option("--once", is_flag=True, help="Print one frame and end.")
@click.option("--readonly", is_flag=True, help="Nothing can be stopped from here, and no command is run.")
@click.option(
    "--record", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write what is watched."
)
@click.option("--replay", type=click.Path(path_type=Path), metavar="FILE", help="Step through what was written.")
@click.option(
    "--on-hang", default="", metavar="CMD", help="Shell command to run once when a job stops making progress."
)
@click.option(
    "--serve",
    default="",
    metavar="[HOST:]PORT",
    help="Show it in a browser instead; on 127.0.0.1 unless a host is named.",
)
@click.option(
    "--metrics",
    default="",
    metavar="[HOST:]PORT",
    help="Serve JOB's numbers to Prometheus instead; on 127.0.0.1 unless a host is named.",
)
@click.option(
    "--patience",
    type=FiniteRange(1),
    default=5.0,
    show_default=True,
    metavar="K",
    help="Alarm after K median steps without progress (at least 5 s).",
)
@unneeded_inventory_option
@json_option
def top(
    job: str | None,
    once: bool,
    readonly: bool,
    record: Path | None,
    replay: Path | None,
    on_hang: str,
    serve: str,
    metrics: str,
    patience: float,
    as_json: bool,
) -> None:
    """Show all jobs, or JOB's ranks, live. JOB may also be a bundle or any directory of logs.

    Example: dlaunch top last --on-hang 'ddoctor hang last > verdict.txt'
    """
    given = {"JOB": job, "--once": once or as_json, "--serve": serve, "--metrics": metrics}
    refuse_contradictions({**given, "--replay": replay, "--record": record, "--on-hang": on_hang})
    shown = str(replay) if replay is not None else job
    if once or as_json:
        _print_once(shown, patience, as_json)
    elif serve:
        target = ["--replay", str(replay)] if replay is not None else [job] if job is not None else []
        _serve(serve, [*target, *(["--readonly"] if readonly else []), "--patience", str(patience)])
    elif metrics:
        if shown is None:
            raise InputError("of which job?", where="--metrics", help="dlaunch top last --metrics 9400")
        _export(metrics, shown, patience, "" if readonly else on_hang)
    else:
        _run(shown, readonly, record, on_hang, patience)


def refuse_contradictions(given: Mapping[str, object]) -> None:
    """Raises InputError for two options (by name, with their values) of which one would be ignored."""
    for one, others in EXCLUDING.items():
        for other in others:
            if given[one] and given[other]:
                raise InputError(f"{one} and {other} exclude each other", where=other, help="leave one out")


def _serve(address: str, arguments: list[str]) -> None:
    """Every page runs `dlaunch top` with these arguments."""
    host, port = _address(address, "--serve")
    try:
        from tui.commands import process_argv
        from tui.web.server import WebServer
    except ModuleNotFoundError as error:
        raise CannotActError(f"{error.name} is not installed", help="pip install 'dlaunch[web]'") from error
    command = shlex.join(process_argv(["dlaunch", "top", *arguments]))
    WebServer(command, host, port).serve()


def _export(address: str, shown: str, patience: float, on_hang: str) -> None:
    host, port = _address(address, "--metrics")
    try:
        from tui.exporter.server import serve
    except ModuleNotFoundError as error:
        raise CannotActError(f"{error.name} is not installed", help="pip install 'dlaunch[metrics]'") from error
    from tui.alarms import AlarmWatch
    from tui.feed.source import open_source

    serve(open_source(shown).feed, AlarmWatch(patience, on_hang), host, port)


def _address(text: str, option: str) -> tuple[str, int]:
    """Host and port; on this machine alone unless a host is named."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise InputError(f"{text!r} is not [HOST:]PORT", where=option, help=f"for example {option} 8800")
    return host.strip("[]") or "127.0.0.1", int(port)


def _run(shown: str | None, readonly: bool, record: Path | None, on_hang: str, patience: float) -> None:
    if "TEXTUAL_DRIVER" not in os.environ and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CannotActError("this is no terminal", help="dlaunch top --once")
    from tui.app import TopApp, TopOptions
    from tui.feed.source import open_source

    opener = partial(open_source, shown) if shown is not None else None
    colourless = "NO_COLOR" in os.environ or os.environ.get("TERM") in ("dumb", "vt100")
    app = TopApp(opener, TopOptions(readonly, colourless, patience, on_hang, record))
    app.run()
    if app.failure is not None:
        raise app.failure


def _print_once(shown: str | None, patience: float, as_json: bool) -> None:
    from launcher.jobs.record import ENDED
    from launcher.jobs.store import all_jobs
    from tui.feed.source import of_job, open_source
    from tui.once import job_document, look, text

    sources = [open_source(shown)] if shown else [of_job(job) for job in all_jobs() if job.record.state not in ENDED]
    frames = [look(source, patience) for source in sources]
    if as_json:
        print_json({"jobs": [job_document(frame) for frame in frames]})
    else:
        click.echo("\n\n".join(text(frame) for frame in frames) or "no job runs; dlaunch top JOB shows an ended one")
