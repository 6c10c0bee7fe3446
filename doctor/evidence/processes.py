"""State of processes: from the agent's samples and status, our node side's look, and `/proc/PID/stack`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from doctor.evidence.source import Parser, Source, rank_in_name
from launcher.common.agent_status import AgentStatus
from launcher.common.binding import RankReport
from launcher.common.node_reports.processes import frames_of
from launcher.common.samples import NodeSample

DOCUMENT_LIMIT = 64 << 20


@dataclass(frozen=True)
class ProcessState:
    """One process at one time. `state` is a word: running, sleeping, disk-sleep, stopped, zombie, gone."""

    rank: int | None
    where: str
    state: str
    host: str = ""
    pid: int | None = None
    time: float = 0.0
    cpu: float | None = None  # cores in use between two looks
    wchan: str = ""  # the kernel function in which it sleeps
    ended: float | None = None  # when its agent saw it end; `exit_status` may be known to torchrun alone
    exit_status: int | None = None
    error: str = ""  # last line of its traceback
    step: int | None = None
    kernel: tuple[str, ...] = ()  # /proc/PID/stack, innermost first

    @property
    def dead(self) -> bool:
        return self.state in ("gone", "zombie")


def sniff_samples(sample: bytes, name: str) -> float:
    return 1.0 if sample.startswith(b'{"time"') and b'"node_rank"' in sample and b'"ranks"' in sample else 0.0


def parse_samples(source: Source) -> Iterator[ProcessState]:
    """The newest sample of a node: one record a rank."""
    last = ""
    for _, line in source.lines():
        last = line or last
    node = NodeSample.from_json(json.loads(last))
    for one in node.ranks:
        yield ProcessState(one.rank, source.name, one.state, node.host, one.pid, node.time, one.cpu, step=one.step)


def sniff_status(sample: bytes, name: str) -> float:
    wanted = (b'"node_rank"', b'"ranks"', b'"attempt"', b'"state"')
    return 1.0 if name.endswith("agent.json") and all(key in sample for key in wanted) else 0.0


def parse_status(source: Source) -> Iterator[ProcessState | RankReport]:
    """The ranks of a node that have ended and to what its ranks are bound, from its agent's status."""
    status = AgentStatus.from_json(json.loads(source.read(DOCUMENT_LIMIT)))
    for one in status.ranks:
        if one.pid is not None:
            yield one.report(status.host)
        if one.ended is not None:
            yield ProcessState(
                one.rank,
                source.name,
                "gone",
                pid=one.pid,
                time=one.ended,
                ended=one.ended,
                exit_status=one.exit_status,
                error=one.error[:300],
                step=one.step,
            )


def sniff_look(sample: bytes, name: str) -> float:
    return 1.0 if sample.startswith(b'{"dlaunch_processes"') else 0.0


def parse_look(source: Source) -> Iterator[ProcessState]:
    """What our node side saw."""
    for one in json.loads(source.read(DOCUMENT_LIMIT))["dlaunch_processes"]:
        yield _looked(one, source.name)


def _looked(record: Mapping[str, Any], where: str) -> ProcessState:
    known = {key: value for key, value in record.items() if key in ProcessState.__dataclass_fields__}
    return ProcessState(**{**known, "where": where, "kernel": tuple(record.get("kernel", ()))})


def sniff_kernel(sample: bytes, name: str) -> float:
    text = sample[:8192].decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return 0.9 if 2 * len(frames_of(text)) > len(lines) else 0.0


def parse_kernel(source: Source) -> Iterator[ProcessState]:
    """The text of /proc/PID/stack."""
    functions = tuple(function for function, _ in frames_of(source.text(DOCUMENT_LIMIT)))
    rank = rank_in_name(source.name)
    yield ProcessState(rank, source.name, "disk-sleep", wchan=functions[0], kernel=functions[:64])


PARSERS = (
    Parser("node samples", sniff_samples, parse_samples),
    Parser("agent status", sniff_status, parse_status),
    Parser("process look", sniff_look, parse_look),
    Parser("kernel stack", sniff_kernel, parse_kernel),
)
