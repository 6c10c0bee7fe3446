"""What `dlaunch top` was asked to show: a job on record, a recording, or a directory of files from any job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from launcher.common.paths import JobPaths
from launcher.errors import InputError
from launcher.jobs.store import StoredJob, find_job
from tui.feed.base import Feed
from tui.feed.logs import LogSource, OpenLogs, directory_logs, file_logs, job_logs


@dataclass(frozen=True)
class Source:
    """A feed, the logs beside it, and the word by which the other commands know it. `live` jobs can be stopped."""

    feed: Feed
    open_logs: OpenLogs
    target: str
    live: bool = False


def of_job(job: StoredJob) -> Source:
    """A job on record."""
    from tui.feed.live import LiveFeed

    return Source(LiveFeed(job), partial(job_logs, job.paths), job.record.job, live=True)


def open_source(text: str) -> Source:
    """A job's name, or a path. Raises InputError for what is neither."""
    path = Path(text)
    if "/" not in text:
        try:
            return of_job(find_job(text))
        except InputError:
            if not path.exists():
                raise
    if path.is_file():
        return recording(path)
    if path.is_dir():
        return of_directory(path)
    raise InputError(f"no such file, directory or job: {text}", where="JOB", help="dlaunch ps")


def recording(path: Path) -> Source:
    """A file of `dlaunch top --record`."""
    from tui.feed.recording import RecordingFeed

    return Source(RecordingFeed(path), _no_logs, str(path))


def of_directory(path: Path) -> Source:
    """A job's directory as it was left (its samples can be replayed), or any directory of logs."""
    from tui.feed.directory import FilesFeed, log_files
    from tui.feed.recording import SamplesFeed

    paths = JobPaths(path)
    if paths.record.is_file():
        feed = SamplesFeed(paths)
        return Source(feed, lambda ranks: directory_logs(paths, ranks, feed.attempt), str(path))
    files = log_files(path)
    if not files:
        raise InputError("neither a job's directory nor any log in it", where=str(path), help="dlaunch top --help")
    return Source(
        FilesFeed(path.name, files), lambda ranks: file_logs({rank: files[rank] for rank in ranks}), str(path)
    )


def _no_logs(ranks: Sequence[int]) -> LogSource:
    raise InputError("a recording holds no logs", where="JOB")
