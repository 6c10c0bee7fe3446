"""After the blows: is every record true, does every checkpoint load, and is nothing left?"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.common.paths import JobPaths
from launcher.jobs.record import ENDED, JobRecord, read_record
from launcher.jobs.store import is_supervised, read_events
from tests.chaos import standin
from tests.chaos.sites import Site
from tests.chaos.story import HARMLESS, Act

PARTING_S, POLL_S = 15.0, 0.5


@dataclass(frozen=True)
class Landed:
    """What really befell a job; `stopped`: somebody asked for its end; `links`: a host was lost in this round."""

    act: Act
    kinds: frozenset[str]
    ranks: frozenset[int]
    stopped: bool
    links: bool

    @property
    def may_fail(self) -> bool:
        return bool(self.kinds - HARMLESS) or self.links or self.act.fails is not None

    @property
    def only_ranks(self) -> bool:
        """Whether a rank's end is all that can have failed the job."""
        planted = self.act.fails is None and not self.links and not self.stopped
        return planted and self.kinds - HARMLESS == {"rank"} and self.act.restarts == 0


def lies(site: Site, landed: Landed) -> Iterator[str]:
    """Every way in which what is on record, on disk or alive is not what it should be."""
    paths = site.paths(landed.act.name)
    if paths is None:
        yield "the job has no record"
        return
    record = read_record(paths.record)
    yield from _of_state(record, landed)
    yield from _of_events(record, paths)
    yield from _of_checkpoints(site, record, landed)
    for host, processes in _left(site, record.job).items():
        yield f"{record.state} ({record.reason}), and processes are left on {host}: {processes}"
    if is_supervised(paths):
        yield "the lock is held"
    for folder in site.folders(record):
        yield from _of_files(folder)


def _left(site: Site, job: str) -> Mapping[str, Sequence[str]]:
    """What runs of a job and does not end by itself: a host that was cut off learns late that it is over."""
    until = time.monotonic() + PARTING_S
    while (found := site.left(job)) and time.monotonic() < until:
        time.sleep(POLL_S)
    return found


def _of_state(record: JobRecord, landed: Landed) -> Iterator[str]:
    if record.state not in ENDED:
        yield f"it is still {record.state}"
        return
    if record.state == "stopped" and not landed.stopped:
        yield f"stopped, and nobody asked: {record.reason}"
    if record.state == "failed" and not landed.may_fail:
        yield f"failed by {sorted(landed.kinds)}, which fail no job: {record.reason}"
    if record.state == "failed" and landed.only_ranks:
        failure = record.first_failure
        if failure is None or failure.rank not in landed.ranks:
            yield f"ranks {sorted(landed.ranks)} were killed, and it names {failure}"
    if (record.state == "succeeded") != (record.exit_status == 0):
        yield f"{record.state} with exit status {record.exit_status}"
    if record.ended is None or record.ended < record.created:
        yield f"ended at {record.ended}"


def _of_events(record: JobRecord, paths: JobPaths) -> Iterator[str]:
    events = [event["event"] for event in read_events(paths) if event["event"] != "swept"]
    if not events or events[0] != "created" or events[-1] != record.state:
        yield f"its events are {events}, and it {record.state}"


def _of_checkpoints(site: Site, record: JobRecord, landed: Landed) -> Iterator[str]:
    for rank in range(landed.act.nodes * landed.act.nproc):
        reached = 0
        for folder in site.folders(record):
            for path in sorted((folder / "checkpoints" / f"rank-{rank}").glob("step-*.json")):
                try:
                    reached = max(reached, standin.load(path))
                except (OSError, ValueError, KeyError) as error:
                    yield f"checkpoint {path} does not load: {error}"
        if record.state == "succeeded" and reached != landed.act.steps:
            yield f"succeeded, and rank {rank} came to step {reached} of {landed.act.steps}"


def _of_files(folder: Path) -> Iterator[str]:
    """Documents are whole, drafts are gone, and nobody else may read."""
    if folder.stat().st_mode & 0o077:
        yield f"{folder} may be read by others"
    for path in folder.rglob("*"):
        if path.name.startswith(".") and path.name.count(".") > 1:
            yield f"a draft is left: {path}"
        elif path.suffix == ".json" and path.name in ("job.json", "agent.json", "stop.json"):
            try:
                json.loads(path.read_text())
            except ValueError as error:
                yield f"{path} is not whole: {error}"
