"""One node's task of a Slurm step: it answers the supervisor's questions until it is told to become the agent.

So one step, and one start of Python on each node, does for all that comes before the ranks. Questions are lines on
standard input, which srun gives to all tasks alike. Answers are lines on standard output, in pieces that are short
enough: srun mixes the longer lines of several tasks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from launcher.agent.door import Door
from launcher.agent.plan import AgentPlan
from launcher.agent.run import Agent
from launcher.common.pieces import cut

Answer = Callable[[str, dict[str, Any]], dict[str, Any]]


def serve(answer: Answer) -> int:
    """Answer until standard input ends or a plan comes; the exit status is then the agent's."""
    node, door = os.environ["SLURMD_NODENAME"], Door()
    for number, line in enumerate(sys.stdin.buffer):
        question = json.loads(line)
        if question["command"] == "run":
            door.close()
            os.dup2(2, 1)  # nobody reads answers any more
            return Agent(AgentPlan(**question["plans"][node])).run()
        reply = {"door": {"port": door.port, "nonce": door.nonce}, **_reply(answer, question)}
        print("\n".join(cut(node, number, json.dumps(reply))), flush=True)
    return 0


def _reply(answer: Answer, question: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": answer(question["command"], question["arguments"])}
    except Exception as error:  # whatever it is, the supervisor tells it to the user
        return {"error": f"{question['command']} failed: {type(error).__name__}: {error}"}
