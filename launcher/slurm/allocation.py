"""The allocation seen from inside its batch script: its nodes in the order of the network, and what they say."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.errors import CannotActError
from launcher.hosts.local import LocalHost
from launcher.hosts.slurm import step_argv
from launcher.slurm.client import hostnames
from launcher.slurm.topology import node_order

MUSTER_S = 60.0


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


def muster(allocation: Allocation, argv: Sequence[str], input: bytes) -> dict[str, dict[str, Any]]:
    """Run `argv` once on every node in one step; each prints one JSON line with its `node` and `topology`.

    Node -> answer, in the order of the network: neighbours at a switch get neighbouring ranks. Raises CannotActError
    naming the nodes that did not answer.
    """
    step = step_argv(allocation.job_id, allocation.nodes, "--input=all")
    done = LocalHost("the allocation").run([*step, *argv], input=input, timeout=MUSTER_S)
    answers = {answer["node"]: answer for answer in json_lines(done.text)}
    silent = [node for node in allocation.nodes if node not in answers]
    if silent:
        words = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise CannotActError(f"{', '.join(silent)} did not answer: {words}", help=f"scontrol show node {silent[0]}")
    order = node_order({node: str(answer.get("topology") or "") for node, answer in answers.items()})
    return {node: answers[node] for node in order}


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
