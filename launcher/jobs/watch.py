"""The supervisor's eyes: the newest agent.json of every node, and who is gone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.common.agent_status import AgentStatus
from launcher.common.paths import JobPaths, make_private
from launcher.errors import CannotActError
from launcher.hosts.node_side import call
from launcher.hosts.protocol import Host, HostError, on_all
from launcher.jobs.failure import NodeView
from launcher.render import NodePlan

START_S = 90.0  # time for an agent to say its first word
STALE_S = 3.0  # an agent that is silent for longer is asked about
HOST_S = 8.0  # a host that was silent for longer is lost; a connection that broke sooner is made anew
DISK_LEAST = 1 << 20  # bytes


@dataclass
class _Memory:
    """What is remembered of one node between two looks (times: monotonic seconds)."""

    since: float
    heard: float
    reached: float
    beat: int = -1
    status: AgentStatus | None = None
    lost: str = ""
    unreachable: bool = False


@dataclass
class Watch:
    """Looks at all nodes of one attempt. `reconnect` gives a fresh connection to a host by name, `ending` why what ran
    there was killed, where somebody tells it."""

    nodes: Sequence[NodePlan]
    hosts: dict[str, Host]
    attempt: int
    mirror: JobPaths
    reconnect: Callable[[str], Host]
    ending: Callable[[str], str] = lambda host: ""

    def __post_init__(self) -> None:
        now = time.monotonic()
        self._memory = {node.node_rank: _Memory(now, now, now) for node in self.nodes}

    def look(self) -> dict[int, NodeView]:
        """The state of every node by node rank."""
        by_host = {node.host: node for node in self.nodes if not self._memory[node.node_rank].lost}
        answers = on_all([self.hosts[name] for name in by_host], lambda host: self._read(host, by_host[host.name]))
        for name, error in answers.failed.items():
            self._on_error(by_host[name], self._memory[by_host[name].node_rank], error)
        for name, status in answers.good.items():
            memory = self._memory[by_host[name].node_rank]
            memory.reached = time.monotonic()
            self._on_status(by_host[name], memory, status)
        return {node.node_rank: self._view(node) for node in self.nodes}

    @property
    def unreachable(self) -> frozenset[str]:
        return frozenset(node.host for node in self.nodes if self._memory[node.node_rank].unreachable)

    def _view(self, node: NodePlan) -> NodeView:
        memory = self._memory[node.node_rank]
        return NodeView(node.host, memory.status, memory.lost, node.clock_offset)

    def _read(self, host: Host, node: NodePlan) -> AgentStatus | None:
        path = JobPaths(Path(node.directory)).agent(node.node_rank)
        with suppress(FileNotFoundError, ValueError, TypeError):
            data = host.read(str(path))
            status = AgentStatus.from_json(json.loads(data))
            own_copy = self.mirror.agent(node.node_rank)
            if own_copy != path:
                make_private(own_copy.parent)
                own_copy.write_bytes(data)
            return status if status.attempt == self.attempt else None
        return None

    def _on_status(self, node: NodePlan, memory: _Memory, status: AgentStatus | None) -> None:
        now = time.monotonic()
        if status is not None and status.beat != memory.beat:
            memory.status, memory.beat, memory.heard = status, status.beat, now
        if memory.status is not None and memory.status.state == "ended":
            return
        if memory.status is None and now - memory.since > START_S:
            log = JobPaths(Path(node.directory)).agent_log(node.node_rank)
            memory.lost = f"its agent did not start within {START_S:.0f} s: see {log}"
        elif memory.status is not None and now - memory.heard > STALE_S:
            self._ask(node, memory)

    def _ask(self, node: NodePlan, memory: _Memory) -> None:
        """Why the agent of `node` is silent: it may be slow, killed, or out of disk, or its host is gone."""
        arguments: dict[str, Any] = {"directory": node.directory, "node_rank": node.node_rank}
        try:
            answer = call(self.hosts[node.host], node.python, node.bundle, "alive", **arguments)
        except HostError as error:  # on a shared file system its files are there even if the host is not
            if time.monotonic() - memory.heard >= HOST_S:
                memory.lost, memory.unreachable = f"lost: {error.message}", True
        except CannotActError as error:
            memory.lost = error.message
        else:
            memory.heard = time.monotonic()
            if answer["disk_free"] < DISK_LEAST:
                memory.lost = f"the disk that holds {node.directory} is full"
            elif not answer["alive"]:
                why = self.ending(node.host)
                memory.lost = "its agent was killed, and its ranks with it" + (f" ({why})" if why else "")

    def _on_error(self, node: NodePlan, memory: _Memory, error: CannotActError) -> None:
        silent = time.monotonic() - memory.reached
        if silent < HOST_S:
            with suppress(CannotActError):
                self.hosts[node.host] = self.reconnect(node.host)
                return
            silent = time.monotonic() - memory.reached
        if silent >= HOST_S:
            memory.lost, memory.unreachable = f"lost: {error.message}", True
