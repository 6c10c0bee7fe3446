"""Profiler traces (Kineto's JSON, plain or gzipped) → how much of a rank's time computes, communicates, idles.

Kernels: `ncclDevKernel_AllReduce_Sum_bf16_RING_LL` since NCCL 2.18, `ncclKernel_…` before; `gloo:all_reduce` on CPU.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from doctor.evidence.source import Parser, Source, UnreadableError, rank_in_name

Interval = tuple[float, float]
_NCCL = re.compile(r"^(?:nccl(?:Dev)?Kernel_?|rccl|mscclKernel|hccl)(.*)", re.I)
_GLOO = re.compile(r"^(?:gloo|nccl|c10d)::?(\w+)")
_POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv", "recvanysource"})
_PIPELINE = re.compile(r"(?i)(?:^|[^a-z])(?:pp|pipe\w*)(?:[^a-z]|$)")
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})


@dataclass(frozen=True)
class TraceTimes:
    """One rank's trace. All times in seconds; `communication` and `computation` are unions of their intervals."""

    rank: int | None
    where: str
    span_s: float
    computation_s: float
    communication_s: float
    overlap_s: float
    idle_s: float  # of the device: neither computes nor communicates
    copies_s: float  # between host and device
    kernels: int
    median_kernel_s: float
    by_group: Mapping[str, tuple[float, float]]  # group or operation → (communication, of it exposed), seconds
    neighbours_s: float = 0.0  # exposed waits for a pipeline's neighbours

    @property
    def exposed_s(self) -> float:
        """Communication that no computation hides."""
        return self.communication_s - self.overlap_s


def sniff(sample: bytes, name: str) -> float:
    return 1.0 if sample.lstrip()[:1] == b"{" and b'"traceEvents"' in sample and b'"ph"' in sample else 0.0


def parse(source: Source) -> Iterator[TraceTimes]:
    """Times of one trace; raises UnreadableError when it holds no kernels and no collectives."""
    document = json.loads(source.read())
    events = [event for event in document.get("traceEvents", ()) if isinstance(event, dict) and event.get("ph") == "X"]
    rank = (document.get("distributedInfo") or {}).get("rank", rank_in_name(source.name))
    yield times_of(events, rank, source.name)


@dataclass
class _Spans:
    """What a trace's events do, by kind. Microseconds."""

    communication: list[Interval] = field(default_factory=list)
    computation: list[Interval] = field(default_factory=list)
    copies: list[Interval] = field(default_factory=list)
    neighbours: list[Interval] = field(default_factory=list)  # the part of communication that is a pipeline's
    groups: defaultdict[str, list[Interval]] = field(default_factory=lambda: defaultdict(list))

    def add(self, event: Mapping[str, Any]) -> None:
        span, category = _interval(event), event.get("cat")
        if kind := collective_of(event):
            self.communication.append(span)
            self.groups[_group(event) or kind].append(span)
            if is_pipeline(event, kind):
                self.neighbours.append(span)
        elif category == "gpu_memcpy":
            self.copies.append(span)
        elif category != "user_annotation":
            self.computation.append(span)


def times_of(events: Sequence[Mapping[str, Any]], rank: int | None, where: str) -> TraceTimes:
    """Measure the complete events of a trace; on CPU the operators of the main threads count as computation."""
    device = [event for event in events if event.get("cat") in _DEVICE]
    spans = _Spans()
    for event in device or [event for event in events if event.get("cat") in ("cpu_op", "user_annotation")]:
        spans.add(event)
    if not spans.communication and not spans.computation:
        raise UnreadableError("a trace without kernels or operators")
    communication, computation, copies = union(spans.communication), union(spans.computation), union(spans.copies)
    busy = union([*communication, *computation, *copies])
    whole = busy[-1][1] - busy[0][0]
    return TraceTimes(
        rank,
        where,
        span_s=whole / 1e6,
        computation_s=length(computation) / 1e6,
        communication_s=length(communication) / 1e6,
        overlap_s=overlap(communication, computation) / 1e6,
        idle_s=(whole - length(busy)) / 1e6,
        copies_s=length(copies) / 1e6,
        kernels=len(device),
        median_kernel_s=median([end - start for start, end in computation] or [0.0]) / 1e6,
        by_group={
            name: (length(union(found)) / 1e6, exposed(found, computation))
            for name, found in sorted(spans.groups.items())
        },
        neighbours_s=exposed(spans.neighbours, computation),
    )


def exposed(spans: Sequence[Interval], computation: Sequence[Interval]) -> float:
    """Seconds of the spans that no computation hides."""
    joined = union(spans)
    return (length(joined) - overlap(joined, computation)) / 1e6


def collective_of(event: Mapping[str, Any]) -> str:
    """The operation of a communication event, or an empty text."""
    name = str(event.get("name", ""))
    found = _NCCL.match(name)
    if found:
        return found[1].split("_")[0].split("(")[0] or "nccl"
    found = _GLOO.match(name)
    return found[1] if found else ""


def is_pipeline(event: Mapping[str, Any], kind: str) -> bool:
    """Whether a communication event is a send or receive between a pipeline's stages.

    NCCL runs all-to-all by the same kernels: what torch says of the call decides, else the group's name.
    """
    told = str((event.get("args") or {}).get("Collective name") or kind).lower()
    if told in _POINT_TO_POINT:
        return True
    return told == "sendrecv" and bool(_PIPELINE.search(_group(event)))


def _group(event: Mapping[str, Any]) -> str:
    args = event.get("args") or {}
    return str(args.get("Process Group Description") or args.get("Process Group Name") or "")


def _interval(event: Mapping[str, Any]) -> Interval:
    start = float(event.get("ts") or 0)
    return start, start + float(event.get("dur") or 0)


def union(spans: Iterable[Interval]) -> list[Interval]:
    """The spans as disjoint intervals in order."""
    joined: list[Interval] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def length(spans: Iterable[Interval]) -> float:
    return sum(end - start for start, end in spans)


def overlap(left: Sequence[Interval], right: Sequence[Interval]) -> float:
    """Length of the part that both unions cover."""
    total, at = 0.0, 0
    for start, end in left:
        while at < len(right) and right[at][1] <= start:
            at += 1
        probe = at
        while probe < len(right) and right[probe][0] < end:
            total += min(end, right[probe][1]) - max(start, right[probe][0])
            probe += 1
    return total


PARSERS = (Parser("profiler trace", sniff, parse),)
