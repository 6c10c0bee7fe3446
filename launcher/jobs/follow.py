"""Follow a job in the terminal: rank 0's output as it comes, and one line that says how far all ranks are."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import click

from launcher.common.agent_status import AgentStatus, RankStatus
from launcher.common.text import printable
from launcher.errors import DlaunchError
from launcher.hosts.protocol import Host
from launcher.jobs import bindings
from launcher.jobs.control import ensure_supervised, stop
from launcher.jobs.output import OutputTail, tails
from launcher.jobs.reach import connect
from launcher.jobs.record import ENDED, JobRecord, read_record
from launcher.jobs.result import read_statuses
from launcher.jobs.store import StoredJob

POLL_S = 0.2
LINE_EVERY_S = 10.0  # between progress lines where there is no terminal to repaint


def progress_line(statuses: Sequence[AgentStatus], world_size: int) -> str:
    """`step 12  loss 3.21  8,200 tokens/s  slowest rank 5 (step 11)`; what is not known is left out."""
    ranks = [rank for status in statuses for rank in status.ranks]
    running = sum(rank.pid is not None and rank.ended is None for rank in ranks)
    moving = [rank for rank in ranks if rank.step is not None]
    if not moving:
        return f"{running}/{world_size} ranks running"
    front = max(rank.step or 0 for rank in moving)
    parts = [f"step {front}"]
    losses = [rank.loss for rank in moving if rank.loss is not None]
    if losses:
        parts.append(f"loss {losses[0]:.4f}")
    speeds = [rank.tokens_per_s for rank in moving if rank.tokens_per_s is not None]
    if speeds:
        parts.append(f"{max(speeds):,.0f} tokens/s")
    slowest = min(moving, key=_slowness)
    if slowest.step != front:
        parts.append(f"slowest rank {slowest.rank} (step {slowest.step})")
    if running < world_size:
        parts.append(f"{running}/{world_size} ranks running")
    return "  ".join(parts)


def _slowness(rank: RankStatus) -> tuple[int, float]:
    return (rank.step or 0, -(rank.step_s or 0.0))


class Follower:
    """Follows one job until it ends or the user leaves it. `quiet`: print nothing (for --json); `output`: rank 0's."""

    def __init__(self, job: StoredJob, quiet: bool, output: bool) -> None:
        self.job, self.quiet, self.output = job, quiet, output and not quiet
        self.live = sys.stderr.isatty() and not quiet
        self.interrupted = 0
        self._hosts: dict[str, Host] = {}
        self._tails: list[OutputTail] = []
        self._attempt = self._bound = -1
        self._line_at = time.monotonic()
        self._shown = ""

    def follow(self) -> JobRecord:
        """Returns the record of the end; raises click.Abort when the user detaches."""
        previous = signal.signal(signal.SIGINT, self._on_interrupt)
        try:
            while (record := read_record(self.job.paths.record)).state not in ENDED:
                trouble = ensure_supervised(StoredJob(record, self.job.paths))
                self._show(record, trouble)
                if self.interrupted:
                    self._ask(record)
                time.sleep(POLL_S)
            self._print_output(record)
            self._print_bindings(record)
            return record
        finally:
            self._clear()
            signal.signal(signal.SIGINT, previous)
            for host in self._hosts.values():
                host.close()

    def _on_interrupt(self, number: int, frame: object) -> None:
        self.interrupted += 1
        if self.interrupted > 1:
            raise KeyboardInterrupt

    def _ask(self, record: JobRecord) -> None:
        """Ctrl-C: stop, detach or go on. A second Ctrl-C stops, and so does the first where nobody can be asked."""
        self._clear()
        answer = "s"
        if sys.stdin.isatty():
            try:
                answer = click.prompt("\n[s]top, [d]etach or [g]o on?", default="g", err=True).strip().lower()[:1]
            except (click.Abort, KeyboardInterrupt):
                answer = "s"
        self.interrupted = 0
        if answer == "s":
            click.echo(f"stopping {record.job} …", err=True)
            stop(self.job, grace=15.0)
        elif answer == "d":
            click.echo(f"detached: the job goes on. Follow it with: dlaunch logs -f {record.job}", err=True)
            raise click.Abort

    def _show(self, record: JobRecord, trouble: str) -> None:
        if self.quiet:
            return
        self._print_output(record)
        self._print_bindings(record)
        line = (
            f"{record.state}: {record.reason}".rstrip(": ")
            if record.state != "running"
            else progress_line(read_statuses(record, self.job.paths), len(record.ranks))
        )
        if trouble:
            line += f"  ({trouble})"
        if self.live:
            if line != self._shown:
                sys.stderr.write(f"\r\x1b[2K{line}")
                sys.stderr.flush()
                self._shown = line
        elif time.monotonic() - self._line_at >= LINE_EVERY_S:
            self._line_at = time.monotonic()
            click.echo(line, err=True)

    def _clear(self) -> None:
        if self.live and self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = ""

    def _print_bindings(self, record: JobRecord) -> None:
        """Once for each attempt, as soon as every rank shows where it is."""
        statuses = read_statuses(record, self.job.paths)
        if self._bound == record.attempt or self.quiet or len(bindings.reports(statuses)) < len(record.ranks):
            return
        self._bound = record.attempt
        self._clear()
        for line in bindings.lines(record, statuses):
            click.echo(printable(line), err=True)

    def _print_output(self, record: JobRecord) -> None:
        """What rank 0 printed since the last look; a host that cannot be reached costs its lines, not the view."""
        if not self.output or not record.ranks:
            return
        with suppress(DlaunchError):
            over = record.state in ENDED
            while lines := [line for tail in self._output(record) for line in tail.lines(over)]:
                self._clear()
                sys.stdout.write("\n".join(lines) + "\n")
                sys.stdout.flush()

    def _output(self, record: JobRecord) -> list[OutputTail]:
        host_name = record.ranks[0].host
        if host_name not in self._hosts:
            self._hosts.update(connect([host_name], record.addresses))
        if self._attempt != record.attempt:
            self._attempt = record.attempt
            self._tails = tails(record, record.ranks[:1], self._hosts)[0]
        return self._tails
