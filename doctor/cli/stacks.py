"""`ddoctor stacks`: one merged tree of all ranks' stacks, of a job, processes, or files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from doctor.cli.target import evidence_of, is_path, native_option, target_options
from doctor.discover import discover
from doctor.evidence import EvidenceSet
from doctor.evidence.stacks import Stack
from doctor.rules.fleet import fleet_of
from doctor.rules.suspects import witnesses_of
from launcher.console import print_json
from launcher.errors import CannotActError


@click.command()
@target_options
@native_option
def stacks(targets: tuple[str, ...], inventory: object, attempt: int | None, native: bool, as_json: bool) -> None:
    """Merge the stacks of all ranks of a JOB, of processes (PID…) or FILEs into one tree, outliers first.

    Example: ddoctor stacks last --native
    """
    from doctor.stack_tree import lines, merge

    pids = [int(target) for target in targets if target.isdigit() and not is_path(target)]
    evidence = of_processes(pids, native) if len(pids) == len(targets) else evidence_of(targets, 0.0, native, attempt)
    found = _newest(evidence)
    if not found:
        raise CannotActError("no stack was found", help="; ".join(map(str, evidence.gaps[:3])) or "ddoctor collect JOB")
    tree = merge(found)
    if as_json:
        print_json({"stacks": len(found), "tree": tree.to_json(), "missing": [str(gap) for gap in evidence.gaps]})
        return
    click.echo("\n".join(lines(tree, evidence.once(fleet_of).coordinates)))
    for gap in evidence.gaps:
        click.echo(f"missing: {gap}", err=True)


def of_processes(pids: Sequence[int], native: bool) -> EvidenceSet:
    """The stacks of processes on this machine."""
    from doctor.node.gather import Request, gather

    with tempfile.TemporaryDirectory(prefix="ddoctor-") as scratch:
        archive = Path(scratch, "look.tar.gz")
        archive.write_bytes(gather(Request(pids=pids, samples=1, native=native)))
        return discover([archive])


def _newest(evidence: EvidenceSet) -> list[Stack]:
    """One stack a rank, the newest; those without a rank all."""
    ranked = evidence.once(witnesses_of).stacks
    return [ranked[rank] for rank in sorted(ranked)] + [one for one in evidence.of(Stack) if one.rank is None]
