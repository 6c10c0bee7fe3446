"""How a job went: the document of `run --json` and `wait --json`, and the lines that people get."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launcher.common.agent_status import AgentStatus, RankStatus
from launcher.common.paths import JobPaths
from launcher.hosts.protocol import Host
from launcher.jobs import bindings
from launcher.jobs.reach import connect
from launcher.jobs.record import JobRecord, RankRecord

TRACEBACK_LINES = 12


def read_statuses(record: JobRecord, paths: JobPaths) -> list[AgentStatus]:
    """The newest agent.json of each node, as the supervisor brought it here; those of older attempts are left out."""
    found = []
    for node in record.nodes:
        with suppress(OSError, ValueError, TypeError):
            status = AgentStatus.from_json(json.loads(paths.agent(node.node_rank).read_text()))
            if status.attempt == record.attempt:
                found.append(status)
    return found


def telling_rank(statuses: Sequence[AgentStatus]) -> RankStatus | None:
    """The first rank that tells a loss."""
    return next((rank for status in statuses for rank in status.ranks if rank.loss is not None), None)


def losses(record: JobRecord, statuses: Sequence[AgentStatus]) -> list[float]:
    """By step over all attempts, as one rank wrote them. Only its host is asked, and none where no rank tells a loss.

    Raises CannotActError where that host cannot be reached.
    """
    telling = telling_rank(statuses)
    number = telling.rank if telling is not None else 0 if record.attempt else None  # an earlier attempt may have told
    where = next((rank for rank in record.ranks if rank.rank == number), None)
    if where is None:
        return []
    host = connect([where.host], record.addresses)[where.host]
    try:
        return [found["loss"] for found in _progress(record, host, where) if found.get("loss") is not None]
    finally:
        host.close()


def _progress(record: JobRecord, host: Host, rank: RankRecord) -> Iterator[dict[str, Any]]:
    directory = next(node.directory for node in record.nodes if node.node_rank == rank.node_rank)
    for attempt in range(record.attempt + 1):
        with suppress(OSError):
            for line in host.read(str(JobPaths(Path(directory)).progress(rank.rank, attempt))).splitlines():
                with suppress(ValueError):
                    yield json.loads(line)


def summary(record: JobRecord, statuses: Sequence[AgentStatus], losses: Sequence[float]) -> dict[str, Any]:
    """The contract's document of a job that has ended (or is left alone)."""
    ranks = [rank for status in statuses for rank in status.ranks]
    telling = telling_rank(statuses)
    failure = record.first_failure
    return {
        "job": record.job,
        "state": record.state,
        "exit_status": record.exit_status,
        "first_failure": None if failure is None else asdict(failure),
        "steps": max((rank.step for rank in ranks if rank.step is not None), default=0),
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else telling.loss if telling else None,  # of logs the newest
        "attempts": record.attempt + 1,
        "reason": record.reason,
        "bindings": bindings.documents(record, statuses),
        "findings": [finding.to_json() for finding in bindings.differences(record, statuses)],
    }


def left_behind(record: JobRecord) -> list[str]:
    """What may still run of a job that has ended, and what ends it; nothing where all of it was ended."""
    again = f"dlaunch stop {record.job}"
    lines = []
    if record.unreached:
        lines.append(f"not reached: {', '.join(record.unreached)}; end what still runs there by: {again}")
    if record.survivors:
        lines.append(f"not ended: {', '.join(record.survivors)}: they hang in the kernel; try again later: {again}")
    return lines


def describe(record: JobRecord, document: dict[str, Any]) -> list[str]:
    """The end of a job in a few lines: what it reached, or its first failure and who was only a victim."""
    seconds = (record.ended or 0) - (record.started or record.created)
    status = f", exit status {record.exit_status}" if record.state == "failed" and record.exit_status else ""
    lines = [f"{record.job}: {record.state} after {seconds:.1f} s{status}"]
    if document["last_loss"] is not None:
        first = "" if document["first_loss"] is None else f"{document['first_loss']:.4f} -> "
        lines.append(f"steps {document['steps']}, loss {first}{document['last_loss']:.4f}")
    lines += left_behind(record)
    failure = record.first_failure
    if failure is None:
        return lines if record.state == "succeeded" else [*lines, record.reason]
    who = failure.host if failure.rank is None else f"rank {failure.rank} on {failure.host}"
    lines.append(f"first failure: {who}: {failure.error}")
    lines += [f"  {line}" for line in failure.traceback.splitlines()[-TRACEBACK_LINES:]]
    if failure.victims:
        from launcher.hosts.names import fold_numbers

        lines.append(f"only victims: ranks {fold_numbers(failure.victims)}")
    lines.append(f"more: dlaunch logs {record.job}; ddoctor diagnose {record.job}")
    return lines
