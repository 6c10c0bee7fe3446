"""A snapshot as Prometheus' metric families. What is not known is left out: a rank without a loss has no such series.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from prometheus_client.core import GaugeMetricFamily

from tui.metrics import BY_KEY
from tui.snapshot import STATES, AlarmKind, Floats, JobInfo, Snapshot

Labels = Sequence[str]


@dataclass(frozen=True)
class RankGauge:
    """`values` by rank, nan where unknown."""

    name: str
    help: str
    values: Callable[[Snapshot], Floats]


OF_RANKS = (
    RankGauge("step", "Steps that the rank has made.", lambda s: s.step),
    RankGauge("step_lag", "Steps behind the foremost rank.", BY_KEY["lag"].values),
    RankGauge("step_seconds", "Duration of its last step.", lambda s: s.step_s),
    RankGauge("data_wait_seconds", "What of its last step it waited for data.", lambda s: s.data_s),
    RankGauge("loss", "Loss of its last step.", lambda s: s.loss),
    RankGauge("tokens_per_second", "Tokens that it works through.", lambda s: s.tokens_per_s),
    RankGauge("progress_timestamp_seconds", "When it made its last step, since the epoch.", lambda s: s.progress_time),
    RankGauge("cpu_cores", "CPU cores that its process uses.", lambda s: s.cpu),
    RankGauge("resident_memory_bytes", "Memory of its process.", lambda s: s.rss),
    RankGauge("device_use_ratio", "Use of its device, from 0 to 1.", lambda s: s.device_util / 100),
    RankGauge("device_memory_bytes", "Memory in use on its device.", lambda s: s.device_memory),
    RankGauge("device_memory_size_bytes", "Memory that its device has.", lambda s: s.device_memory_total),
    RankGauge("device_temperature_celsius", "Temperature of its device.", lambda s: s.temperature),
)


def families(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    """All families, also those without a sample."""
    yield from _of_job(snapshot)
    yield from _of_hosts(snapshot)
    names, ranks = rank_labels(snapshot.job)
    for gauge in OF_RANKS:
        values = gauge.values(snapshot)
        family = GaugeMetricFamily(f"dlaunch_rank_{gauge.name}", gauge.help, labels=names)
        for labels, value in zip(ranks, values.tolist(), strict=True):
            if value == value:
                family.add_metric(labels, value)
        yield family
    states = GaugeMetricFamily("dlaunch_rank_state", "1 with the state of its process.", labels=[*names, "state"])
    for labels, code in zip(ranks, snapshot.state.tolist(), strict=True):
        states.add_metric([*labels, STATES[code]], 1)
    yield states


def rank_labels(job: JobInfo) -> tuple[Labels, Sequence[Labels]]:
    """The labels' names, and for each rank their values: job, host, rank, and `mesh_<axis>` where the mesh is known."""
    axes = job.layout.axes if job.layout is not None else ()
    names = ["job", "host", "rank", *(f"mesh_{axis}" for axis in axes)]
    places = [position for _, position in job.layout.ranks()] if job.layout is not None else [{}] * job.world_size
    return names, [
        [job.job, job.host_of(rank), str(rank), *(str(place[axis]) for axis in axes)]
        for rank, place in enumerate(places)
    ]


def _of_job(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    job = snapshot.job
    state = GaugeMetricFamily("dlaunch_job_state", "1 with the state of the job.", labels=["job", "state"])
    state.add_metric([job.job, job.state], 1)
    yield state
    attempt = GaugeMetricFamily("dlaunch_job_attempt", "How often it was restarted.", labels=["job"])
    attempt.add_metric([job.job], job.attempt)
    yield attempt
    alarms = GaugeMetricFamily("dlaunch_job_alarm", "Whether a person should look, by reason.", labels=["job", "kind"])
    raised = {alarm.kind for alarm in snapshot.alarms}
    for kind in get_args(AlarmKind):
        alarms.add_metric([job.job, kind], kind in raised)
    yield alarms


def _of_hosts(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    """A host that has neither sent a sample nor failed is neither up nor down yet."""
    up = GaugeMetricFamily("dlaunch_host_up", "Whether the host sends samples.", labels=["job", "host"])
    told = GaugeMetricFamily(
        "dlaunch_host_sample_timestamp_seconds", "When it sent the last, since the epoch.", labels=["job", "host"]
    )
    for node, (host, seen) in enumerate(zip(snapshot.job.hosts, snapshot.nodes.seen.tolist(), strict=True)):
        labels = [snapshot.job.job, host]
        if node in snapshot.nodes.lost or seen == seen:
            up.add_metric(labels, node not in snapshot.nodes.lost)
        if seen == seen:
            told.add_metric(labels, seen)
    yield from (up, told)
