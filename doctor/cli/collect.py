"""`ddoctor collect`: a bundle of a job's evidence, to keep or to send."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from doctor.cli.target import attempt_option, interval_option, native_option
from launcher.cli.options import inventory_option, job_argument, json_option
from launcher.console import print_json


@click.command()
@job_argument
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE", help="A .tar.gz.")
@inventory_option
@click.option("--full", is_flag=True, help="Whole dumps instead of each node's reductions.")
@native_option
@interval_option
@attempt_option
@click.option("--anonymize", is_flag=True, help="Replace host names, addresses and user names, the same everywhere.")
@json_option
def collect(
    job: str,
    output: Path,
    inventory: object,
    full: bool,
    native: bool,
    interval: float,
    attempt: int | None,
    anonymize: bool,
    as_json: bool,
) -> None:
    """Collect a JOB's evidence into one archive that ddoctor reads anywhere.

    Example: ddoctor collect last -o bundle.tar.gz
    """
    from doctor.anonymize import anonymize_folder
    from doctor.archives import pack
    from doctor.collect import Options, collect_named

    with tempfile.TemporaryDirectory(prefix="ddoctor-") as scratch:
        folder = Path(scratch, "bundle")
        found = collect_named(job, folder, Options(2, interval, full, native, attempt))
        if anonymize:
            anonymize_folder(folder, found.hosts)
        pack(folder.rename(folder.with_name(found.job.replace(":", "-"))), output)
    for line in found.missing:
        click.echo(f"warning: {line}", err=True)
    if as_json:
        print_json({"bundle": str(output), "bytes": output.stat().st_size, "missing": list(found.missing)})
    else:
        click.echo(f"{output}: {output.stat().st_size:,} bytes; read it with: ddoctor diagnose {output}")
    sys.exit(3 if len(found.missing) >= len(set(found.hosts)) else 0)
