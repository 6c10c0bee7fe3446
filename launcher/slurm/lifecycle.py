"""What becomes of a Slurm job: from what Slurm says and what the job's own files say, to what is recorded. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from launcher.common.agent_status import AgentStatus
from launcher.slurm.reasons import pending_reason
from launcher.slurm.status import JobStatus

Outcome = Literal["pending", "running", "succeeded", "failed", "stopped"]

_ENDS = {
    "TIMEOUT": ("failed", "its time limit was reached"),
    "NODE_FAIL": ("failed", "a node failed"),
    "OUT_OF_MEMORY": ("failed", "out of memory: a step used more than --mem allows"),
    "PREEMPTED": ("failed", "preempted by a job of higher priority"),
    "DEADLINE": ("failed", "its deadline passed"),
    "BOOT_FAIL": ("failed", "a node did not boot"),
    "LAUNCH_FAILED": ("failed", "Slurm could not launch it"),
    "REVOKED": ("failed", "another cluster of the federation took it"),
    "CANCELLED": ("stopped", "cancelled with scancel"),
}


@dataclass(frozen=True)
class News:
    """What is to be recorded."""

    state: Outcome
    reason: str = ""
    ended: float | None = None


def news(status: JobStatus | None, agents: Sequence[AgentStatus], nodes: int, has_run: bool) -> News:
    """`status` is None where neither queue nor accounting know the job: then its own files decide.

    `has_run`: a job that waits and has run before was requeued.
    """
    if status is None:
        return _from_files(agents, nodes, "Slurm does not know it any more")
    if status.state.phase == "waiting":
        return _waiting(status, again=has_run)
    if not status.state.ended:
        return News("running")
    if status.state.name in _ENDS:
        outcome, reason = _ENDS[status.state.name]
        return News(outcome, reason, ended=status.ended)  # type: ignore[arg-type]
    by_files = _from_files(agents, nodes, _batch_end(status))
    return News(by_files.state, by_files.reason, ended=status.ended)


def _waiting(status: JobStatus, again: bool) -> News:
    why = pending_reason(status.reason)
    parts = [f"requeued: {why}" if again else str(why)]
    if status.started is not None:
        parts.append(f"expected start {time.strftime('%d %b %H:%M', time.localtime(status.started))}")
    if why.never:
        parts.append(f"it cannot start like this: {why.help}" if why.help else "it cannot start like this")
    return News("pending", "; ".join(parts))


def _batch_end(status: JobStatus) -> str:
    return f"its batch script ended with {status.exit_code}" if status.exit_code else "its batch script ended"


def _from_files(agents: Sequence[AgentStatus], nodes: int, otherwise: str) -> News:
    ended = [agent for agent in agents if agent.state == "ended"]
    if len(ended) == nodes and all(agent.exit_status == 0 for agent in ended):
        return News("succeeded", "all ranks ended with status 0", ended=max(agent.time for agent in ended))
    failed = next((agent for agent in ended if agent.exit_status), None)
    if failed is not None:
        return News("failed", f"torchrun on {failed.host} ended with status {failed.exit_status}", ended=failed.time)
    return News("failed", f"{otherwise} before its ranks had ended")


# ---- in the batch script: the warning and what follows


@dataclass(frozen=True)
class Warned:
    """The warning signal came at `at` (monotonic seconds), `grace_s` before Slurm ends the job."""

    at: float
    grace_s: float

    def must_leave(self, now: float) -> bool:
        """Whether the time that is left is needed for the requeue itself."""
        return now - self.at > self.grace_s - min(10.0, self.grace_s / 4)


EndAction = Literal["requeue", "end"]


def after_the_end(asked: bool, requeue: bool, state: str) -> EndAction:
    """What follows when all ranks have ended: if Slurm `asked` for it, they did so to be started again."""
    return "requeue" if asked and requeue and state != "stopped" else "end"


ENDING = "Slurm is ending the job"


def restart_reason(earlier: Sequence[JobStatus], events: Sequence[Mapping[str, Any]]) -> str:
    """Why the job is started again: our own supervisor's last word, else the accounting's on its earlier runs."""
    ours = [event for event in events if event["event"] in ("stopping", "pending") and "by" not in event]
    causes = [_ENDS[status.state.name][1] for status in earlier if status.state.name in _ENDS]
    words = [str(event.get("reason", "")) for event in ours if event.get("reason") != ENDING]
    return words[-1].removeprefix("requeued: ") if words else causes[-1] if causes else "by Slurm"
