"""End a node's part of a job from outside, also when its agent is gone, and prove it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from launcher.agent import tree
from launcher.common.paths import JobPaths

SWEEP_GRACE_S = 2.0


def stop_node(job: str, directory: str, node_rank: int, grace: float) -> dict[str, Any]:
    """SIGTERM to the agent and up to `grace` seconds for it; then end whatever still carries the job's mark.

    Returns `{"ended": n, "survivors": [pid, …]}`.
    """
    agent = find_agent(directory, node_rank)
    if agent is not None:
        with suppress(psutil.NoSuchProcess):
            agent.send_signal(signal.SIGTERM)
        tree.wait_for_end([agent], grace, lambda: None)
    living = [agent] if agent is not None and tree.is_alive(agent) else []
    return _end([*tree.members(job, node_rank), *living])


def sweep(job: str) -> dict[str, Any]:
    """End every process that carries the job's mark: what a run of it that nobody ended left behind."""
    return _end(tree.members(job))


def _end(processes: Iterable[psutil.Process]) -> dict[str, Any]:
    others = [process for process in processes if process.pid != os.getpid()]
    survivors = tree.end(others, SWEEP_GRACE_S)
    return {"ended": len(others) - len(survivors), "survivors": survivors}


def warn_agent(directory: str, node_rank: int) -> dict[str, Any]:
    """SIGUSR2 to the agent, which passes it on to its ranks; `{"warned": whether there is one}`."""
    agent = find_agent(directory, node_rank)
    if agent is not None:
        with suppress(psutil.NoSuchProcess):
            agent.send_signal(signal.SIGUSR2)
    return {"warned": agent is not None}


def find_agent(directory: str, node_rank: int) -> psutil.Process | None:
    """The living agent that agent.json names; a pid that was given to another process since is not it."""
    try:
        document = json.loads(JobPaths(Path(directory)).agent(node_rank).read_text())
        process = psutil.Process(document["pid"])
        same = abs(process.create_time() - document["start_time"]) < 1.0
    except (OSError, ValueError, KeyError, psutil.NoSuchProcess):
        return None
    return process if same and tree.is_alive(process) else None
