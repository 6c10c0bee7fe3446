"""A job's record as the screens want it."""

from __future__ import annotations

from launcher.jobs.record import JobRecord
from tui.snapshot import JobInfo


def job_info(record: JobRecord) -> JobInfo:
    hosts = [node.host for node in sorted(record.nodes, key=lambda node: node.node_rank)]
    ranks = sorted(record.ranks, key=lambda rank: rank.rank)
    return JobInfo(
        job=record.job,
        name=record.name,
        state=record.state,
        cluster=record.cluster,
        kind=record.kind,
        mesh={axis: size for axis, size in record.mesh.items() if axis != "ep"},
        hosts=hosts,
        node_of=[rank.node_rank for rank in ranks],
        local_rank=[rank.local_rank for rank in ranks],
        devices=[rank.device for rank in ranks],
        attempt=record.attempt,
        started=record.started,
        ended=record.ended,
        reason=record.reason,
        script=str(record.spec.get("script", "")),
    )
