"""How each rank ended, from what it left: torch's error file, its last traceback, torchrun's report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from launcher.agent.plan import AgentPlan
from launcher.common.agent_status import RankStatus
from launcher.common.paths import JobPaths
from launcher.common.python_errors import PythonError, last_traceback, torchrun_exit_statuses

TAIL_BYTES = 64_000
TRACEBACK_LINES = 20


def rank_outcomes(
    ranks: Sequence[RankStatus], paths: JobPaths, plan: AgentPlan, output: str, reaped: Mapping[int, int]
) -> tuple[RankStatus, ...]:
    """Add exit status and error to each rank. `output` is torchrun's own, `reaped` the statuses of adopted orphans."""
    reported = torchrun_exit_statuses(output)
    completed = []
    for status in ranks:
        exit_status = reported.get(status.rank, reaped.get(status.pid or -1))
        stderr = read_tail(paths.stderr(status.rank, plan.attempt))
        error = _error_file(plan, paths, status.local_rank) or last_traceback(stderr)
        if error is not None and exit_status != 0:
            text = "\n".join(error.lines[-TRACEBACK_LINES:])
            status = replace(status, error=error.error, traceback=text)
        completed.append(replace(status, exit_status=exit_status))
    return tuple(completed)


def _error_file(plan: AgentPlan, paths: JobPaths, local_rank: int) -> PythonError | None:
    """What a script under torch's `@record` left in torchrun's log folder."""
    folder = paths.torchrun_logs(plan.node_rank, plan.attempt)
    for path in folder.glob(f"*/attempt_0/{local_rank}/error.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            message = json.loads(path.read_text(errors="replace"))["message"]
            lines = str(message["extraInfo"]["py_callstack"]).rstrip().splitlines()
            return PythonError(str(message["message"]), tuple(lines))
    return None


def read_tail(path: Path) -> str:
    """The last TAIL_BYTES of a file as text; empty where there is no file."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
    return ""
