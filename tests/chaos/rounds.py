"""One round: start the jobs of a story, let the blows fall, settle, and judge."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from launcher.jobs.record import ENDED, JobRecord, read_record
from tests.chaos.sites import Site
from tests.chaos.story import Act, Blow
from tests.chaos.truth import Landed, lies

POLL_S = 0.05
TELLING_S = 120.0  # after this the story is over, whatever has not fallen
THAW_S = 1.0


@dataclass
class Stage:
    """A job on stage: its terminal, and what has befallen it."""

    act: Act
    terminal: subprocess.Popen[bytes]
    waiting: list[Blow]
    written_at: float = 0.0
    ran_at: float = 0.0
    kinds: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Told:
    """How a round went: what really fell on its jobs, and what is not true afterwards, a line each."""

    fell: Sequence[str]
    lies: Sequence[str]


def tell(site: Site, acts: Sequence[Act]) -> Told:
    """Play a round, and judge it."""
    stages = [
        Stage(act, site.terminal(["run", *act.options, site.script, "--", *act.arguments]), list(act.blows))
        for act in acts
    ]
    until = time.monotonic() + TELLING_S
    while time.monotonic() < until and not all(_over(site, stage) for stage in stages):
        for stage in stages:
            _play(site, stage)
        time.sleep(POLL_S)
    links = any(stage.kinds & {"cut", "crash"} for stage in stages)
    site.heal()
    asked = {stage.act.name for stage in stages if not _settled(site, stage)}
    found = []
    for stage in stages:
        stopped = "stop" in stage.kinds or stage.act.name in asked
        landed = Landed(stage.act, frozenset(stage.kinds), frozenset(stage.ranks), stopped, links)
        found += [
            f"{stage.act.name} ({', '.join(sorted(stage.kinds)) or 'nothing'}): {lie}" for lie in lies(site, landed)
        ]
    return Told([f"{stage.act.name} {kind}" for stage in stages for kind in sorted(stage.kinds)], found)


def _record(site: Site, stage: Stage) -> JobRecord | None:
    paths = site.paths(stage.act.name)
    return read_record(paths.record) if paths else None


def _over(site: Site, stage: Stage) -> bool:
    record = _record(site, stage)
    if record is None:
        return stage.terminal.poll() is not None
    return record.state in ENDED or (not stage.waiting and stage.terminal.poll() is not None)


def _play(site: Site, stage: Stage) -> None:
    record, now = _record(site, stage), time.monotonic()
    if record is None or record.state in ENDED:
        return
    stage.written_at = stage.written_at or now
    if record.state == "running":
        stage.ran_at = stage.ran_at or now
    for blow in list(stage.waiting):
        since = stage.written_at if blow.early else stage.ran_at
        if since and now - since >= blow.after:
            hit = strike(site, stage, record, blow)
            if hit is not None:
                stage.waiting.remove(blow)
            if hit:
                stage.kinds.add(blow.what)


def strike(site: Site, stage: Stage, record: JobRecord, blow: Blow) -> bool | None:
    """Let one blow fall; False where there is nothing to hit any more, None where there is nothing yet."""
    if blow.what in ("terminal", "hangup"):
        number = signal.SIGKILL if blow.what == "terminal" else signal.SIGHUP
        with suppress(ProcessLookupError):
            os.killpg(stage.terminal.pid, number)
        return True
    if blow.what == "stop":
        site.terminal(["stop", record.job, "--grace", "1"])
        return True
    if blow.what in ("cut", "crash"):
        (site.cut if blow.what == "cut" else site.crash)(record, blow.node % len(record.nodes))
        return True
    if blow.what == "supervisor":
        if record.supervisor is None:
            return None
        with suppress(ProcessLookupError):
            os.kill(record.supervisor.pid, signal.SIGKILL)
        return True
    return _strike_node(site, stage, record, blow)


def _strike_node(site: Site, stage: Stage, record: JobRecord, blow: Blow) -> bool | None:
    node = blow.node if blow.what == "agent" else blow.rank // stage.act.nproc
    status = site.agent(record, node)
    if not status:
        return None
    if status["state"] == "ended":
        return False
    if blow.what == "agent":
        site.kill(record, node, status["pid"], signal.SIGKILL)
        return True
    pid = next((rank["pid"] for rank in status["ranks"] if rank["rank"] == blow.rank and not rank["ended"]), None)
    if pid is None:
        return None
    if blow.what == "rank":
        stage.ranks.add(blow.rank)
        site.kill(record, node, pid, signal.SIGKILL)
    else:
        site.kill(record, node, pid, signal.SIGSTOP)
        time.sleep(THAW_S)
        site.kill(record, node, pid, signal.SIGCONT)
    return True


def _settled(site: Site, stage: Stage) -> bool:
    """Wait for the end as a user does; what does not end is stopped. False where it had to be."""
    with suppress(ProcessLookupError):
        os.killpg(stage.terminal.pid, signal.SIGKILL)
    stage.terminal.communicate()
    record = _record(site, stage)
    if record is None:
        return True
    status, _ = site.dlaunch("wait", record.job, timeout=TELLING_S)
    ended = status in (0, 1)
    if not ended or read_record(site.jobs_folder / record.job / "job.json").unreached:
        site.dlaunch("stop", record.job, "--grace", "1")
    return ended
