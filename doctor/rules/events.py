"""Log events by their kind, their writers in words, and the finding that they tell. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.text import fold_hosts, name_ranks
from launcher.common.finding import Evidence, Finding, Severity

SHOWN = 4  # quoted lines of one finding


def events_of(evidence: EvidenceSet, *kinds: str) -> list[LogEvent]:
    """The events of these kinds, kind by kind."""
    found = evidence.once(by_kind)
    return [event for kind in kinds for event in found.get(kind, ())]


def by_kind(evidence: EvidenceSet) -> Mapping[str, Sequence[LogEvent]]:
    """Kind → its events. Use as `evidence.once(by_kind)`."""
    found: defaultdict[str, list[LogEvent]] = defaultdict(list)
    for event in evidence.of(LogEvent):
        found[event.kind].append(event)
    return dict(found)


def by_fields(events: Iterable[LogEvent], *names: str) -> Mapping[tuple[str, ...], Sequence[LogEvent]]:
    """What these fields say → the events in which they say it, in order of that."""
    found: defaultdict[tuple[str, ...], list[LogEvent]] = defaultdict(list)
    for event in events:
        found[tuple(event[name] for name in names)].append(event)
    return dict(sorted(found.items()))


def ranks_of(events: Iterable[LogEvent]) -> tuple[int, ...]:
    return tuple(sorted({event.origin.rank for event in events if event.origin.rank is not None}))


def hosts_of(events: Iterable[LogEvent]) -> tuple[str, ...]:
    return tuple(sorted({event.origin.host for event in events if event.origin.host}))


def sentence(text: str) -> str:
    """Text with a capital first letter; names of ranks, hosts and calls stay as they are looked for."""
    return text[:1].upper() + text[1:] if text.startswith(("a ", "an ", "the ")) else text


def who(events: Collection[LogEvent]) -> str:
    """`rank 3 on node2`, `ranks 0, 1`, `node[1-4]`, `device [1]`, or `a process`."""
    ranks, hosts = ranks_of(events), hosts_of(events)
    place = f" on {fold_hosts(hosts)}" if hosts else ""
    if ranks:
        return name_ranks(ranks) + place
    if hosts:
        return fold_hosts(hosts)
    devices = sorted({event.origin.device for event in events if event.origin.device is not None})
    return "the process with device " + ", ".join(f"[{index}]" for index in devices) if devices else "a process"


def quotes(events: Iterable[LogEvent]) -> tuple[Evidence, ...]:
    """The first lines of each writer, as evidence."""
    return tuple(Evidence("log", event.where, event.text) for event in list(events)[:SHOWN])


def first_time(events: Iterable[LogEvent]) -> float | None:
    return min((event.time for event in events if event.time is not None), default=None)


def said(
    events: Sequence[LogEvent],
    code: str,
    cause: str,
    fix: str,
    confidence: float,
    severity: Severity = "error",
    *,
    ranks: Sequence[int] | None = None,
    hosts: Sequence[str] | None = None,
    missing: Sequence[str] = (),
    **detail: Any,
) -> Finding:
    """A finding that log lines tell. Its ranks and hosts are the writers unless others are given (writers are often
    victims); the first lines are its evidence."""
    when = first_time(events)
    known: dict[str, Any] = {"lines": sum(event.count for event in events)}
    return Finding(
        code,
        severity,
        sentence(cause),
        fix,
        confidence,
        ranks_of(events) if ranks is None else tuple(ranks),
        hosts_of(events) if hosts is None else tuple(hosts),
        detail=known | ({"time": when} if when is not None else {}) | detail,
        evidence=quotes(events),
        missing=tuple(missing),
    )
