"""Carry out drills: small real jobs with a fault, looked at while it lasts; answers are held against the table."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from doctor.collect import Options, collect
from doctor.diagnose import diagnose
from doctor.discover import discover
from doctor.drills.table import ENOUGH_STEPS, EXPECTED, MESHES, Expectation
from launcher.common.agent_status import AgentStatus
from launcher.common.finding import Verdict
from launcher.errors import DlaunchError
from launcher.jobs.record import ENDED, read_record
from launcher.jobs.result import read_statuses
from launcher.jobs.store import StoredJob

HEALTHY = "healthy"
SLOW_NODE = 1  # the node that the workloads' `slow_node` slows by default
STILL_S = 6.0  # without a step and a job hangs, as far as drills with their short steps go
PATIENCE_S = 150.0
LOOK_S = 0.25
STOP_GRACE_S = 2.0
MANY_STEPS = "100000"


@dataclass(frozen=True)
class Drill:
    """One cell: a fault of a workload at a rank and step."""

    fault: str
    workload: str
    rank: int = 1
    step: int = 5
    node_size: int = 2  # ranks of a node

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks that the fault concerns: a node's, where its kind says so."""
        if self.expectation.by_node:
            return tuple(range(SLOW_NODE * self.node_size, (SLOW_NODE + 1) * self.node_size))
        return (self.rank,) if self.expectation.ranked else ()

    @property
    def expectation(self) -> Expectation:
        if self.fault == HEALTHY:
            return Expectation(("none",), "slow", ranked=False)
        return EXPECTED[self.fault]

    def arguments(self) -> tuple[str, ...]:
        size = ("--steps", MANY_STEPS, "--seq", "32", "--batch", "16", *self.expectation.arguments)
        if self.fault == HEALTHY:
            return size
        return (*size, "--fault", f"{self.fault}:rank={self.rank},step={self.step}")


@dataclass(frozen=True)
class Outcome:
    """How a drill went. `seconds` is from asking to the verdict."""

    drill: Drill
    answer: str
    ranks: Sequence[int]
    right_code: bool
    right_rank: bool
    seconds: float
    error: str = ""
    detail: Mapping[str, Any] | None = None
    cluster: str = ""  # where it ran

    @property
    def right(self) -> bool:
        return self.right_code and self.right_rank

    def to_json(self) -> dict[str, Any]:
        expectation = self.drill.expectation
        return {
            "fault": self.drill.fault,
            "workload": self.drill.workload,
            "cluster": self.cluster,
            "expected": {"code": expectation.codes, "ranks": list(self.drill.culprits)},
            "answer": self.answer,
            "ranks": list(self.ranks),
            "right": self.right,
            "seconds": round(self.seconds, 1),
            **({"error": self.error} if self.error else {}),
        }


def carry_out(drill: Drill, cluster: str | None, inventory: Path | None, nodes: int, nproc: int) -> Outcome:
    """Start the job, wait for its fault to show, ask the doctor, end the job."""
    from launcher.jobs.control import start, stop
    from launcher.jobs.prepare import prepare
    from launcher.jobs.request import RunRequest

    request = RunRequest(
        script=f"workloads/{drill.workload}.py",
        args=drill.arguments(),
        cluster=cluster,
        inventory=inventory,
        nodes=str(nodes),
        nproc_per_node=nproc,
        mesh=MESHES.get((drill.fault, drill.workload)),
        name=f"drill-{drill.fault}".replace("_", "-"),
    )
    try:
        job = start(prepare(request))
    except DlaunchError as error:
        return Outcome(drill, "error", (), False, False, 0.0, error.message, cluster=cluster or "")
    try:
        wait_for_fault(job, drill)
        return _judged(drill, StoredJob(read_record(job.paths.record), job.paths))
    finally:
        with suppress(DlaunchError):
            stop(job, STOP_GRACE_S)


def wait_for_fault(job: StoredJob, drill: Drill) -> None:
    """Until the job has ended, hangs, or (for what is slow) has made enough steps after its fault."""
    deadline, since = time.monotonic() + PATIENCE_S, time.monotonic()
    last: tuple[int, ...] = ()
    while time.monotonic() < deadline:
        record = read_record(job.paths.record)
        if record.state in ENDED:
            return
        steps = _steps(read_statuses(record, job.paths))
        if steps != last:
            last, since = steps, time.monotonic()
        moving = bool(steps) and min(steps) >= 1
        if drill.expectation.stage == "slow" and moving and min(steps) >= drill.step + ENOUGH_STEPS:
            return
        if moving and time.monotonic() - since > STILL_S:
            return
        time.sleep(LOOK_S)


def _steps(statuses: Sequence[AgentStatus]) -> tuple[int, ...]:
    return tuple(rank.step or 0 for status in statuses for rank in status.ranks)


def _judged(drill: Drill, job: StoredJob) -> Outcome:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ddoctor-") as scratch:
        folder = Path(scratch)
        collect(job, folder, Options(samples=1 if job.record.state in ENDED else 2))
        verdict = diagnose(discover([folder]), drill.expectation.question)
    return replace(score(drill, verdict, time.monotonic() - started), cluster=job.record.cluster)


def score(drill: Drill, verdict: Verdict, seconds: float) -> Outcome:
    """Hold a verdict against the table: its answer, or its first finding where that is for information."""
    expectation = drill.expectation
    first = verdict.findings[0] if verdict.findings else None
    said = {verdict.answer} | ({first.code} if first and verdict.answer == "none" else set())
    ranks = tuple(first.ranks) if first else ()
    return Outcome(
        drill,
        verdict.answer,
        ranks,
        bool(said & set(expectation.codes)),
        set(drill.culprits) <= set(ranks),
        seconds,
        detail={"cause": first.cause, "sub_cause": first.detail.get("sub_cause")} if first else None,
    )


def cells(names: Sequence[str], workloads: Sequence[str], node_size: int = 2, backend: str = "gloo") -> Iterator[Drill]:
    """The drills of `names` (all where none is given) that make sense for these workloads on this backend."""
    from workloads.common.faults import COMMON, KINDS

    for name, kind in KINDS.items():
        if name not in EXPECTED or (names and name not in names) or backend not in kind.backends:
            continue
        settings = {**COMMON, **kind.defaults}
        for workload in workloads:
            if workload in kind.workloads:
                far = name == "same_data" and (name, workload) not in MESHES  # rank 1 may share rank 0's data
                rank = node_size if far else int(settings["rank"])
                yield Drill(name, workload, rank, int(settings["step"]), node_size)
    if not names or HEALTHY in names:
        yield from (Drill(HEALTHY, workload) for workload in workloads)


def scoreboard(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The document of `ddoctor drill`."""
    faulty = [one for one in outcomes if one.drill.fault != HEALTHY]
    healthy = [one for one in outcomes if one.drill.fault == HEALTHY]

    def share(right: int) -> float | None:
        return round(right / len(faulty), 3) if faulty else None

    return {
        "drills": [one.to_json() for one in outcomes],
        "score": {
            "code": share(sum(one.right_code for one in faulty)),
            "rank": share(sum(one.right_rank for one in faulty)),
            "false_alarms": sum(one.answer not in ("none", "unknown") for one in healthy),
        },
    }
