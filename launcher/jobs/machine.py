"""The life of a job as a pure machine: what is seen goes in, what is to be done comes out.

starting -> running -> [settling ->] stopping -> (starting | ended)

It compares states instead of counting events, so a supervisor that adopts a running job starts anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from launcher.jobs.failure import NodeView, first_failure, port_was_taken
from launcher.jobs.record import Failure

Phase = Literal["starting", "running", "settling", "stopping", "ended"]
SETTLE_S = 5.0  # time for the other ranks to fail by themselves, with their own words
PORT_RETRIES = 3


@dataclass(frozen=True)
class StartAttempt:
    """Start all nodes anew; `reason` goes to the events."""

    attempt: int
    reason: str


@dataclass(frozen=True)
class StopAttempt:
    """End what still runs of this attempt. `at_once`: it failed, so no grace is owed to it."""

    reason: str
    at_once: bool


@dataclass(frozen=True)
class Conclude:
    """The job is over."""

    state: Literal["succeeded", "failed", "stopped"]
    reason: str
    failure: Failure | None = None


Action = StartAttempt | StopAttempt | Conclude


@dataclass(frozen=True)
class Life:
    """All that the machine remembers. `since` is when the phase began (monotonic seconds)."""

    max_restarts: int
    phase: Phase = "starting"
    attempt: int = 0
    restarts: int = 0
    port_retries: int = 0
    since: float = 0.0
    stop_wanted: bool = False
    failure: Failure | None = None
    failures_by_host: Mapping[str, int] = field(default_factory=dict)
    lost_hosts: frozenset[str] = frozenset()

    def to(self, phase: Phase, now: float) -> Life:
        return replace(self, phase=phase, since=now)


def observe(life: Life, views: Mapping[int, NodeView], now: float, stop: bool) -> tuple[Life, Action | None]:
    """One look at all nodes."""
    if life.phase in ("stopping", "ended"):
        return life, None
    if stop:
        return replace(life.to("stopping", now), stop_wanted=True), StopAttempt("stop was asked for", at_once=False)
    if views and all(view.over and not view.failed for view in views.values()):
        return life.to("ended", now), Conclude("succeeded", "all ranks ended with status 0")
    if life.phase == "settling":
        if all(view.over for view in views.values()) or now - life.since >= SETTLE_S:
            return life.to("stopping", now), StopAttempt(failure_text(views), at_once=True)
        return life, None
    if any(view.failed for view in views.values()):
        return life.to("settling", now), None
    started = all(view.status is not None and view.status.state == "running" for view in views.values())
    if life.phase == "starting" and started:
        return life.to("running", now), None
    return life, None


def stopped(life: Life, views: Mapping[int, NodeView], now: float, survivors: Sequence[str]) -> tuple[Life, Action]:
    """All nodes were ended after StopAttempt; `survivors` are the processes that could not be, as `host:pid`."""
    left = f"; these processes could not be ended: {', '.join(survivors)}" if survivors else ""
    if life.stop_wanted:
        return life.to("ended", now), Conclude("stopped", f"stopped on request{left}")
    failure = first_failure(views)
    if port_was_taken(views) and life.port_retries < PORT_RETRIES:
        again = replace(life.to("starting", now), attempt=life.attempt + 1, port_retries=life.port_retries + 1)
        return again, StartAttempt(again.attempt, "another program took the rendezvous port")
    if life.restarts >= life.max_restarts:
        ended = replace(life.to("ended", now), failure=failure)
        return ended, Conclude("failed", failure_text(views) + left, failure)
    again = _restarted(life, views, failure, now)
    return again, StartAttempt(again.attempt, f"restart {again.restarts} of {life.max_restarts}: {failure_text(views)}")


def _restarted(life: Life, views: Mapping[int, NodeView], failure: Failure | None, now: float) -> Life:
    counts = dict(life.failures_by_host)
    if failure is not None and failure.host is not None:
        counts[failure.host] = counts.get(failure.host, 0) + 1
    return replace(
        life.to("starting", now),
        attempt=life.attempt + 1,
        restarts=life.restarts + 1,
        failure=failure,
        failures_by_host=counts,
        lost_hosts=life.lost_hosts | {view.host for view in views.values() if view.lost},
    )


def failure_text(views: Mapping[int, NodeView]) -> str:
    """The first failure in one line."""
    failure = first_failure(views)
    if failure is None:
        return "failed"
    who = f"rank {failure.rank} on {failure.host}" if failure.rank is not None else f"{failure.host}"
    return f"{who}: {failure.error}"


def choose_hosts(
    current: Sequence[str], spares: Sequence[str], bad: frozenset[str], minimum: int, maximum: int
) -> list[str] | None:
    """Hosts of the next attempt, in order of node ranks: a bad host's place is taken by a spare, or by the next one.

    None where fewer than `minimum` are left. Between `minimum` and `maximum` as many as there are.
    """
    fresh = [spare for spare in spares if spare not in bad and spare not in current]
    chosen = []
    for host in current:
        if host not in bad:
            chosen.append(host)
        elif fresh:
            chosen.append(fresh.pop(0))
    chosen += fresh[: max(0, maximum - len(chosen))]
    return chosen[:maximum] if len(chosen) >= minimum else None


BAD_AFTER = 2  # failures of one host


def bad_hosts(life: Life) -> frozenset[str]:
    """Hosts that are left out: those that failed twice, and those that could not be reached."""
    return life.lost_hosts | {host for host, count in life.failures_by_host.items() if count >= BAD_AFTER}
