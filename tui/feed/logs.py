"""Where the log lines of a job's ranks come from: its files, here or on its hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from launcher.common.paths import JobPaths
from launcher.errors import DlaunchError
from launcher.hosts.local import LocalHost
from launcher.hosts.names import fold_numbers
from launcher.hosts.protocol import Host
from launcher.jobs.output import OutputTail, folded, tails
from launcher.jobs.record import JobRecord, read_record

MOST_RANKS = 64  # followed at once
_NEWEST = 256_000  # bytes of each file with which it begins
_SIZES = 'for f; do stat -c %s "$f" 2>/dev/null || echo 0; done'

Labelled = tuple[str, str]


class LogSource:
    """Lines of some ranks as (label, text); what several say at the same place comes once, with all of them."""

    def __init__(self, files: Mapping[int, Sequence[OutputTail]], hosts: Sequence[Host] = ()) -> None:
        self._files = files
        self._hosts = hosts
        _skip_to_newest([tail for tails_of_rank in files.values() for tail in tails_of_rank])

    def read(self) -> list[Labelled]:
        """What is new. Raises HostError when a host is lost."""
        fresh = {rank: [line for tail in files for line in tail.lines()] for rank, files in self._files.items()}
        return [(fold_numbers(ranks), line) for ranks, line in folded(fresh)]

    def close(self) -> None:
        for host in self._hosts:
            host.close()


OpenLogs = Callable[[Sequence[int]], LogSource]


def job_logs(paths: JobPaths, ranks: Sequence[int]) -> LogSource:
    """The logs of `ranks` of a job on record. Raises DlaunchError where its hosts cannot be reached."""
    record = read_record(paths.record)
    chosen = [rank for rank in record.ranks if rank.rank in set(ranks)]
    if all((paths.root / "ranks" / str(rank.rank)).is_dir() for rank in chosen):
        return directory_logs(paths, ranks, record.attempt)
    return LogSource(*_remote(record, ranks))


def _remote(record: JobRecord, ranks: Sequence[int]) -> tuple[Mapping[int, Sequence[OutputTail]], Sequence[Host]]:
    from launcher.jobs.reach import connect

    chosen = [rank for rank in record.ranks if rank.rank in set(ranks)]
    hosts: dict[str, Host] = {}
    errors: list[DlaunchError] = []
    for name in dict.fromkeys(rank.host for rank in chosen):
        try:
            hosts |= connect([name], record.addresses)
        except DlaunchError as error:
            errors.append(error)
    if errors and not hosts:
        raise errors[0]
    return tails(record, chosen, hosts), list(hosts.values())


def directory_logs(paths: JobPaths, ranks: Sequence[int], attempt: int) -> LogSource:
    """The logs in a job's directory on this machine."""
    here = LocalHost()
    return LogSource(
        {
            rank: [
                OutputTail(here, str(path.absolute()))
                for path in (paths.stdout(rank, attempt), paths.stderr(rank, attempt))
            ]
            for rank in ranks
        }
    )


def file_logs(files: Mapping[int, Path]) -> LogSource:
    """One log file a rank, as any job may have left them."""
    here = LocalHost()
    return LogSource({rank: [OutputTail(here, str(path.absolute()))] for rank, path in files.items()})


def _skip_to_newest(files: Sequence[OutputTail]) -> None:
    """Begin near the end of large files: one question a host."""
    for host in {id(tail.host): tail.host for tail in files}.values():
        own = [tail for tail in files if tail.host is host]
        with suppress(DlaunchError, ValueError):
            answer = host.run(["sh", "-c", _SIZES, "sh", *(tail.path for tail in own)])
            for tail, size in zip(own, answer.text.split(), strict=True):
                tail.offset = max(0, int(size) - _NEWEST)
