"""The allocation seen from inside its batch script: its nodes, and what they say."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.errors import CannotActError
from launcher.hosts.local import LocalHost
from launcher.hosts.slurm import step_argv
from launcher.slurm.client import hostnames

ASK_S = 60.0


@dataclass(frozen=True)
class Allocation:
    """A running job: `nodes` as Slurm lists them; `restarts` counts how often Slurm has requeued it."""

    job_id: str
    nodes: tuple[str, ...]
    restarts: int = 0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Allocation:
        """Raises CannotActError outside of a job."""
        if "SLURM_JOB_ID" not in environ:
            raise CannotActError("this is no Slurm job", help="dlaunch run --cluster NAME")
        nodes = tuple(hostnames(environ["SLURM_JOB_NODELIST"]))
        return cls(environ["SLURM_JOB_ID"], nodes, int(environ.get("SLURM_RESTART_COUNT", "0")))


def ask_nodes(
    allocation: Allocation, scratch: Path, python: str, bundle: str, command: str, arguments: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The answers of all nodes to a command of the node side, asked in one step; nodes in Slurm's order.

    Each task's output goes to a file of its own in `scratch`, a folder that the nodes share: srun mixes the lines of
    several tasks. Raises CannotActError naming the nodes that did not answer.
    """
    given = json.dumps({"command": command, "arguments": arguments}).encode()
    with tempfile.TemporaryDirectory(prefix="answers-", dir=scratch) as folder:
        step = step_argv(allocation.job_id, allocation.nodes, "--input=all", f"--output={folder}/%t")
        done = LocalHost("the allocation").run([*step, python, bundle, "in_step"], input=given, timeout=ASK_S)
        text = "\n".join(path.read_text(errors="replace") for path in Path(folder).iterdir())
    answers = {line["node"]: line["answer"] for line in json_lines(text)}
    silent = [node for node in allocation.nodes if node not in answers]
    if silent:
        words = (text + done.stderr.decode(errors="replace")).strip().rpartition("\n")[2]
        raise CannotActError(f"{', '.join(silent)} did not answer: {words}", help=f"scontrol show node {silent[0]}")
    return {node: answers[node] for node in allocation.nodes}


def json_lines(text: str) -> list[dict[str, Any]]:
    """The JSON objects among lines of output; login banners and warnings are passed over."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found
