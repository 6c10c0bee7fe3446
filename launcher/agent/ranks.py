"""`--no-torchrun`: starts a node's ranks with the variables that torchrun would set, for commands that read them.

Standard library only, run by its path under the job's Python. It ends with its agent, and its ranks with it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

GRACE_S = 30  # for the others when a rank has failed, as torchrun gives them


def variables(options: argparse.Namespace, local_rank: int) -> dict[str, str]:
    """What the process of one rank finds in its environment."""
    values = {
        "RANK": options.node_rank * options.nproc_per_node + local_rank,
        "WORLD_SIZE": options.nnodes * options.nproc_per_node,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": options.nproc_per_node,
        "GROUP_RANK": options.node_rank,
        "NODE_RANK": options.node_rank,
        "MASTER_ADDR": options.master_addr,
        "MASTER_PORT": options.master_port,
    }
    return {name: str(value) for name, value in values.items()}


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--nnodes", "--nproc-per-node", "--node-rank", "--master-port"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--master-addr", required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args(words)


class Ranks:
    """The processes of the ranks by pid."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.alive = {self._start(local_rank): local_rank for local_rank in range(options.nproc_per_node)}
        signal.signal(signal.SIGTERM, lambda number, frame: self.signal(signal.SIGTERM))
        signal.signal(signal.SIGALRM, self._lose_patience)

    def _start(self, local_rank: int) -> int:
        environment = {**os.environ, **variables(self.options, local_rank)}
        return subprocess.Popen(self.options.command, env=environment).pid

    def signal(self, number: signal.Signals) -> None:
        for pid in self.alive:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _lose_patience(self, number: int, frame: FrameType | None) -> None:
        self.signal(signal.SIGKILL)

    def wait(self) -> int:
        """The exit status of the first rank that failed; the others are ended then, and each failure is reported."""
        first = 0
        while self.alive:
            pid, ended = os.wait()
            local_rank, status = self.alive.pop(pid, None), os.waitstatus_to_exitcode(ended)
            if local_rank is None or not status:
                continue
            print(report(variables(self.options, local_rank)["RANK"], local_rank, pid, status), flush=True)
            if not first:
                first = status
                self.signal(signal.SIGTERM)
                signal.alarm(GRACE_S)
        return first if first >= 0 else 128 - first


def report(rank: str, local_rank: int, pid: int, status: int) -> str:
    """A failed rank in the form of torchrun's report, which the agent reads."""
    return f"  rank      : {rank} (local_rank: {local_rank})\n  exitcode  : {status} (pid: {pid})"


if __name__ == "__main__":
    sys.exit(Ranks(parse(sys.argv[1:])).wait())
