"""The agent: starts a node's torchrun, watches its ranks, ends all of it, and keeps agent.json true.

One thread, one loop. torchrun and its ranks die with the agent (parent-death signal).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

import psutil

from launcher.agent import binding, shim, tree
from launcher.agent.check import collectable
from launcher.agent.held_tree import hold_tree
from launcher.agent.outcome import rank_outcomes, read_tail
from launcher.agent.plan import AgentPlan
from launcher.agent.sampler import NodeSampler
from launcher.agent.versions import node_versions
from launcher.common.agent_status import AgentStatus, RankStatus
from launcher.common.paths import JobPaths, make_private

BEAT_S = 1.0
WAKE_S = 0.1
MESSAGE_BYTES = 4000
FAILED_TO_START = 127


class Agent:
    """One node's part of one attempt."""

    def __init__(self, plan: AgentPlan) -> None:
        self.plan = plan
        self.paths = JobPaths(Path(plan.directory))
        self.reaper = tree.Reaper()
        self.stop_requested = False
        self.exits = select.poll()
        self.pidfds: dict[int, int] = {}  # descriptor -> local rank
        self.sampler = NodeSampler(
            self.paths, plan.node_rank, plan.host, plan.attempt, self._rank_numbers(), _device_uuids(plan.env)
        )
        self.status = AgentStatus(
            node_rank=plan.node_rank,
            attempt=plan.attempt,
            host=plan.host,
            state="starting",
            pid=os.getpid(),
            start_time=psutil.Process().create_time(),
            ranks=tuple(RankStatus(rank, local) for local, rank in enumerate(self._rank_numbers())),
            versions=node_versions(),
            collectable=collectable(plan.env),
        )

    def _rank_numbers(self) -> range:
        return range(self.plan.first_rank, self.plan.first_rank + self.plan.nproc)

    @property
    def log(self) -> Path:
        return self.paths.torchrun_output(self.plan.node_rank, self.plan.attempt)

    def run(self) -> int:
        """Start, watch until torchrun has ended, sweep up, and return its exit status."""
        tree.become_subreaper()
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGUSR2, self._on_warning)
        self._write()
        hold_tree(self.plan.workdir)
        launcher = self._start()
        status = FAILED_TO_START if launcher is None else self._watch(launcher)
        survivors = tree.end(tree.descendants(psutil.Process()), 1.0, self.reaper.collect)
        self._note_exits(0)
        self._finish(status, survivors)
        return status

    def _start(self) -> subprocess.Popen[bytes] | None:
        attempt = self.plan.attempt
        make_private(self.paths.torchrun_logs(self.plan.node_rank, attempt))
        for rank in self._rank_numbers():
            make_private(self.paths.rank(rank, attempt))
        environment = {**os.environ, **self.plan.env, "DLAUNCH_AGENT_PID": str(os.getpid())}
        try:
            with self.log.open("ab") as log:
                launcher = subprocess.Popen(
                    self.plan.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.plan.workdir,
                    env=environment,
                    start_new_session=True,
                    preexec_fn=shim.prepare_launcher,
                )
        except OSError as error:
            self.status = replace(self.status, message=f"cannot start {self.plan.argv[0]}: {error}")
            return None
        self.status = replace(self.status, state="running", launcher_pid=launcher.pid)
        return launcher

    def _watch(self, launcher: subprocess.Popen[bytes]) -> int:
        next_beat = kill_at = 0.0
        while launcher.pid not in self.reaper.statuses:
            self._find_ranks()
            changed = self._note_exits(WAKE_S)
            now = time.monotonic()
            if self.stop_requested and not kill_at:
                kill_at = now + self.plan.stop_grace_s
                self._signal(launcher.pid, signal.SIGTERM)
            elif kill_at and now > kill_at:
                tree.end(tree.descendants(psutil.Process()), 0.0, self.reaper.collect)
            if changed or now >= next_beat:
                next_beat = now + BEAT_S
                self._sample()
                self._write()
            self.reaper.collect()
        launcher.returncode = self.reaper.statuses[launcher.pid]
        return launcher.returncode

    def _find_ranks(self) -> None:
        """Take up the ranks whose shim has told its pid since the last look."""
        for status in self.status.ranks:
            if status.pid is not None:
                continue
            with suppress(OSError, ValueError, psutil.NoSuchProcess):
                pid = int(self.paths.pid(status.rank, self.plan.attempt).read_text())
                descriptor = os.pidfd_open(pid)
                self.exits.register(descriptor, select.POLLIN)
                self.pidfds[descriptor] = status.local_rank
                self._update(status.local_rank, pid=pid, start_time=psutil.Process(pid).create_time())

    def _note_exits(self, patience: float) -> bool:
        """Wait up to `patience` seconds for ranks to end; their order is the kernel's, not that of a poll."""
        ended = self.exits.poll(patience * 1000)
        for descriptor, _ in ended:
            self._update(self.pidfds.pop(descriptor), ended=time.time())
            self.exits.unregister(descriptor)
            os.close(descriptor)
        return bool(ended)

    def _update(self, local_rank: int, **changes: object) -> None:
        ranks = list(self.status.ranks)
        ranks[local_rank] = replace(ranks[local_rank], **changes)  # type: ignore[arg-type]
        self.status = replace(self.status, ranks=tuple(ranks))

    def _sample(self) -> None:
        """Look at the ranks, for `top` and for our own record of how far they are."""
        used, variable = self.sampler.devices_in_use(), binding.visible_variable(self.plan.env)
        sample = self.sampler.write({rank.rank: rank.pid for rank in self.status.ranks if rank.pid is not None})
        for local_rank, rank in enumerate(sample.ranks):
            self._update(
                local_rank,
                step=rank.step,
                loss=rank.loss,
                tokens_per_s=rank.tokens_per_s,
                step_s=rank.step_s,
                progress_time=rank.progress_time,
                **(binding.look(rank.pid, variable, used.get(rank.pid, ())) if rank.pid is not None else {}),
            )

    def _write(self) -> None:
        """A disk that is full must not end the agent: its ranks still need it."""
        self.status = replace(self.status, beat=self.status.beat + 1, time=time.time())
        path = self.paths.agent(self.plan.node_rank)
        if attempt_in(path) > self.plan.attempt:
            # Our host was given up, yet it reaches the disk: another agent has our place, no rank of ours may write.
            self.stop_requested, self.plan = True, replace(self.plan, stop_grace_s=0.0)
            return
        draft = path.with_suffix(f".{self.plan.attempt}.new")
        with suppress(OSError):
            make_private(path.parent)
            draft.write_text(json.dumps(self.status.to_json()))
            draft.replace(path)

    def _finish(self, status: int, survivors: list[int]) -> None:
        self._sample()
        output = read_tail(self.log)
        self.status = replace(
            self.status,
            state="ended",
            exit_status=status,
            stopped=self.stop_requested,
            survivors=tuple(survivors),
            message=self.status.message or (output[-MESSAGE_BYTES:] if status else ""),
            ranks=rank_outcomes(self.status.ranks, self.paths, self.plan, output, self.reaper.statuses),
        )
        self._write()

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self.stop_requested = True

    def _on_warning(self, number: int, frame: FrameType | None) -> None:
        """Slurm's warning before the time limit or preemption: every rank hears it."""
        for rank in self.status.ranks:
            if rank.pid is not None and rank.ended is None:
                self._signal(rank.pid, signal.SIGUSR2)

    @staticmethod
    def _signal(pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def attempt_in(path: Path) -> int:
    """The attempt whose agent wrote this agent.json; -1 where there is none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads(path.read_text())["attempt"])
    return -1


def _device_uuids(environment: Mapping[str, str]) -> list[str]:
    """The devices that the ranks see, where they are named by UUID; an index would name another device to others."""
    names = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return names if all(name.startswith("GPU-") for name in names) else []


def main() -> int:
    """Run the agent whose plan is on standard input."""
    return Agent(AgentPlan.from_bytes(sys.stdin.buffer.read())).run()
