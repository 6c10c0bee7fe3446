"""`ddoctor timeline`: all ranks' collectives as a Perfetto trace."""

from __future__ import annotations

from pathlib import Path

import click

from doctor.cli.target import evidence_of, target_options
from launcher.console import print_json
from launcher.errors import CannotActError


@click.command()
@target_options
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The trace.")
def timeline(
    targets: tuple[str, ...],
    inventory: object,
    attempt: int | None,
    as_json: bool,
    output: Path,
) -> None:
    """Write the recorded collectives of all ranks as a trace for ui.perfetto.dev, a track for each rank and group.

    Example: ddoctor timeline last -o job.pftrace
    """
    from doctor.report.timeline import trace
    from doctor.rules.fleet import fleet_of

    evidence = evidence_of(targets, 0.0, attempt=attempt)
    fleet = evidence.once(fleet_of)
    if not fleet.tables:
        raise CannotActError("no flight recorder dump was found", help="; ".join(map(str, evidence.gaps[:3])))
    data = trace(fleet)
    output.write_bytes(data)
    calls = sum(table.calls.count for table in fleet.tables.values())
    if as_json:
        print_json({"trace": str(output), "bytes": len(data), "ranks": len(fleet.tables), "calls": calls})
    else:
        click.echo(f"{output}: {calls:,} calls of {len(fleet.tables)} ranks; open it at https://ui.perfetto.dev")
