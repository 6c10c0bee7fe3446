"""One step over the nodes of an allocation: it answers questions, and then becomes the agents.

A step of its own for each question would cost a start of srun and of Python on every node.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.common.pieces import Joiner
from launcher.errors import CannotActError
from launcher.hosts.slurm import step_argv

ASK_S = 60.0
POLL_S = 0.01
END_S = 10.0
CHUNK = 1 << 20
_TASK_ENDED = re.compile(
    r"^srun: error: \S+: tasks? \S+: (?:Exited|Killed|Terminated|Segmentation|Aborted)", re.MULTILINE
)
STEPS_VARIABLE = "DLAUNCH_STEPS"  # the batch script's file: it waits until nobody holds a lock on it


class Session:
    """`python` runs the node side in folder `bundle` on each of `nodes`; what it writes to stderr goes to file `log`.

    The step outlives this process once it has become the agents, and ends with it before.
    """

    def __init__(
        self, job_id: str, nodes: Sequence[str], python: str, bundle: str, log: Path, options: Sequence[str] = ()
    ) -> None:
        self.job_id, self.nodes, self.python, self.bundle, self.log = job_id, tuple(nodes), python, bundle, log
        self.doors: dict[str, Mapping[str, Any]] = {}  # where each node can be knocked at: port and nonce
        self._asked = 0
        self._replies: dict[str, dict[str, Any]] = {}
        self._joiner = Joiner()
        self._answers, answers = tempfile.mkstemp(prefix="dlaunch-")  # a file: a pipe of srun would break with us
        self._heard = 0
        lock = os.environ.get(STEPS_VARIABLE)
        holding = ["flock", "--shared", lock] if lock else []
        step = step_argv(job_id, nodes, "--wait=0", "--kill-on-bad-exit=0", "--input=all", *options)
        argv = [*holding, *step, python, bundle, "serve"]
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as errors, Path(answers).open("ab") as output:
            self._srun = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=output, stderr=errors, start_new_session=True
            )
        Path(answers).unlink()
        assert self._srun.stdin is not None
        self._stdin = self._srun.stdin

    def ask(self, command: str, arguments: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """`post` and `answers` in one."""
        self.post(command, arguments)
        return self.answers()

    def post(self, command: str, arguments: Mapping[str, Any]) -> None:
        """Ask all nodes a command of the node side, and wait for nothing."""
        self._send({"command": command, "arguments": arguments})

    def answers(self) -> dict[str, dict[str, Any]]:
        """What all nodes say to the question that was posted; nodes in Slurm's order.

        Raises CannotActError naming the nodes that did not answer, or what one of them could not do.
        """
        deadline = time.monotonic() + ASK_S
        while len(self._replies) < len(self.nodes):
            over = self._srun.poll() is not None or self._a_task_ended() or time.monotonic() > deadline
            self._listen()
            if over and len(self._replies) < len(self.nodes):
                raise self._silence()
            time.sleep(POLL_S)
        self._asked += 1
        replies, self._replies = self._replies, {}
        for node, reply in replies.items():
            self.doors[node] = reply["door"]
            if "error" in reply:
                raise CannotActError(f"{node}: {reply['error']}", help=f"see {self.log}")
        return {node: replies[node]["answer"] for node in self.nodes}

    def start_agents(self, plans: Mapping[str, Mapping[str, Any]]) -> None:
        """Every node becomes the agent of its plan. Raises CannotActError where the step has ended."""
        self._send({"command": "run", "plans": plans})
        self._hang_up()

    def said(self) -> str:
        """What srun and the tasks wrote to stderr, until now and also as agents."""
        with self.log.open(errors="replace") as log:
            log.seek(self._log_start)
            return log.read()

    def close(self) -> None:
        """End the step, unless it has become the agents."""
        if self._stdin.closed:
            return
        self._hang_up()
        try:
            self._srun.wait(END_S)
        except subprocess.TimeoutExpired:
            self._srun.kill()
            self._srun.wait()

    def _hang_up(self) -> None:
        """Tasks that wait for a question end; agents do not."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        os.close(self._answers)

    def _send(self, question: Mapping[str, Any]) -> None:
        try:
            self._stdin.write(json.dumps(question).encode() + b"\n")
            self._stdin.flush()
        except BrokenPipeError:
            raise self._silence() from None

    def _listen(self) -> None:
        while data := os.pread(self._answers, CHUNK, self._heard):
            self._heard += len(data)
            for node, number, text in self._joiner.feed(data.decode(errors="replace")):
                assert number == self._asked, f"an answer to question {number} of {node}"
                self._replies[node] = json.loads(text)

    def _a_task_ended(self) -> bool:
        """Whether srun says so: it waits for the other tasks, which wait for us."""
        return bool(_TASK_ENDED.search(self.said()))

    def _silence(self) -> CannotActError:
        silent = [node for node in self.nodes if node not in self._replies]
        words = self.said().strip().rpartition("\n")[2]
        return CannotActError(f"{', '.join(silent)} did not answer: {words}", help=f"scontrol show node {silent[0]}")
