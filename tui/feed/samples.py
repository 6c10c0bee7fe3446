"""The newest sample of a node: from a file that can be read here, or streamed from its host."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from launcher.agent.tail import Tail
from launcher.common.paths import JobPaths
from launcher.errors import DlaunchError
from launcher.hosts.protocol import Host
from launcher.jobs.record import JobRecord
from launcher.render import NodePlan

_LAST_SAMPLES = 65_536  # bytes: several samples of the largest node
_RETRY_S = 3.0


class NodeSamples(Protocol):
    """`lost` says why the host does not answer; empty while it does, or while that is not known."""

    lost: str

    def newest(self) -> bytes:
        """The newest whole line since the last call; empty where there is none. Never waits."""

    def close(self) -> None:
        """Give back connections."""


class FileSamples:
    """sample.jsonl on this machine or a shared file system."""

    lost = ""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path, _LAST_SAMPLES)

    def newest(self) -> bytes:
        return self._tail.new().rpartition(b"\n")[0].rpartition(b"\n")[2]

    def close(self) -> None:
        """No file is kept open."""


class StreamedSamples:
    """`tail -F` on the host, in a thread of its own: a host that hangs delays nobody. Connects again when lost."""

    def __init__(self, host: str, path: Path, addresses: Mapping[str, Mapping[str, Any]]) -> None:
        self.lost = ""
        self._newest = b""
        self._name, self._path, self._addresses = host, path, addresses
        self._closing = threading.Event()
        self._host: Host | None = None
        threading.Thread(target=self._run, name=f"samples-{host}", daemon=True).start()

    def newest(self) -> bytes:
        newest, self._newest = self._newest, b""
        return newest

    def close(self) -> None:
        self._closing.set()
        if self._host is not None:
            self._host.close()

    def _run(self) -> None:
        from launcher.jobs.reach import connect

        while not self._closing.is_set():
            try:
                self._host = connect([self._name], self._addresses)[self._name]
                self._follow(self._host)
                self.lost = "its sample stream ended"
            except (DlaunchError, OSError) as error:
                self.lost = str(error)
            self._closing.wait(_RETRY_S)

    def _follow(self, host: Host) -> None:
        rest = b""
        try:
            for data in host.stream(["tail", "-n", "1", "-F", str(self._path)]):
                if self._closing.is_set():
                    return
                lines, newline, rest = (rest + data).rpartition(b"\n")
                if newline:
                    self.lost, self._newest = "", lines.rpartition(b"\n")[2]
        finally:
            host.close()


def node_samples(record: JobRecord, paths: JobPaths) -> list[NodeSamples]:
    """A source for each node by node_rank."""
    nodes = sorted(record.nodes, key=lambda node: node.node_rank)
    here = {directory: Path(directory).is_dir() for directory in {node.directory for node in nodes}}
    return [_source(record, node, paths, here[node.directory]) for node in nodes]


def _source(record: JobRecord, node: NodePlan, paths: JobPaths, here: bool) -> NodeSamples:
    there = JobPaths(Path(node.directory)).samples(node.node_rank)
    if record.kind == "ssh" and node.host in record.addresses and not there.is_file():
        return StreamedSamples(node.host, there, record.addresses)
    return FileSamples(there if here else paths.samples(node.node_rank))
