"""Which failure came first: the cause, not its echoes. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.common.agent_status import AgentStatus, RankStatus
from launcher.common.python_errors import is_echo
from launcher.jobs.record import Failure

_PORT_TAKEN = re.compile(r"EADDRINUSE|[Aa]ddress already in use")


@dataclass(frozen=True)
class NodeView:
    """One node as the supervisor sees it: its newest document, and why it is given up where it is.

    `clock_offset` is the node's clock minus ours, in seconds.
    """

    host: str
    status: AgentStatus | None = None
    lost: str = ""
    clock_offset: float = 0.0

    @property
    def over(self) -> bool:
        return bool(self.lost) or (self.status is not None and self.status.state == "ended")

    @property
    def failed(self) -> bool:
        return bool(self.lost) or (self.over and self.status is not None and self.status.exit_status != 0)


@dataclass(frozen=True)
class _Candidate:
    echo: bool
    time: float
    rank: int | None
    host: str
    error: str
    exit_status: int | None = None  # negative: the signal's number
    traceback: str = ""
    silent: bool = False  # ended, and nothing says how: with status 0, or ended by its torchrun after another's failure

    @property
    def order(self) -> tuple[bool, float, int]:
        return (self.echo, self.time, -1 if self.rank is None else self.rank)


def first_failure(views: Mapping[int, NodeView]) -> Failure | None:
    """The earliest failure that is no echo of another, else the earliest of all; None where nothing failed.

    A rank that left with status 0 while others still worked counts too: they fail because it is gone.
    """
    if not any(view.failed for view in views.values()):
        return None
    candidates = [candidate for view in views.values() for candidate in _candidates(view)]
    earliest = min((c.time for c in candidates if not c.silent), default=float("inf"))
    causes = [c for c in candidates if not c.silent or c.time < earliest]
    first = min(causes, key=lambda candidate: candidate.order)
    victims = sorted({c.rank for c in candidates if c.rank is not None and c.rank != first.rank})
    return Failure(first.rank, first.host, first.error, first.traceback, tuple(victims), as_shell(first.exit_status))


def _candidates(view: NodeView) -> list[_Candidate]:
    status = view.status
    found = [] if status is None else [c for rank in status.ranks for c in _of_rank(rank, view)]
    if view.lost:
        last_sign = 0.0 if status is None else status.time - view.clock_offset
        return [*found, _Candidate(False, last_sign, None, view.host, view.lost)]
    if not found and view.failed and status is not None:
        error = last_line(status.message) or f"torchrun ended with status {status.exit_status}"
        found = [
            _Candidate(
                is_echo(status.message, status.exit_status),
                status.time - view.clock_offset,
                None,
                view.host,
                error,
                status.exit_status,
                status.message,
            )
        ]
    return found


def _of_rank(rank: RankStatus, view: NodeView) -> list[_Candidate]:
    if rank.ended is None and rank.exit_status is None:
        return []
    when = (rank.ended or rank.progress_time or 0.0) - view.clock_offset
    if rank.exit_status or rank.error:
        error = rank.error or describe_exit(rank.exit_status or 0)
        echo = is_echo(f"{rank.error}\n{rank.traceback}", rank.exit_status)
        return [_Candidate(echo, when, rank.rank, view.host, error, rank.exit_status, rank.traceback)]
    step = "" if rank.step is None else f" after step {rank.step}"
    return [_Candidate(False, when, rank.rank, view.host, f"ended early, with status 0{step}", 0, silent=True)]


def as_shell(status: int | None) -> int | None:
    """128 + n for a death by signal n."""
    return status if status is None or status >= 0 else 128 - status


def describe_exit(status: int) -> str:
    """`killed by SIGKILL`, or `ended with status 3`."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def last_line(text: str) -> str:
    lines: Sequence[str] = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def port_was_taken(views: Mapping[int, NodeView]) -> bool:
    """Whether the attempt failed because another program took the rendezvous port meanwhile."""
    return any(view.status is not None and _PORT_TAKEN.search(view.status.message) for view in views.values())
