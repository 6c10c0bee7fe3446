"""Findings of log lines that speak for themselves: the table of meanings applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import UNEXPLAINED, LogEvent
from doctor.rules import Rule
from doctor.rules.events import by_fields, events_of, quotes, said, sentence, who
from doctor.rules.meaning import Meaning
from doctor.rules.meanings import MEANINGS
from launcher.common.finding import Finding, unknown

# Kind → the kind that explains it when the same process says both.
EXPLAINS: Mapping[str, str] = {"ipc_failed": "reclaim_failed", "gpu_busy": "gpu_reset"}


class Words(dict[str, str]):
    """Fields for a template: what a line does not tell is left out."""

    def __missing__(self, name: str) -> str:
        field = name.removesuffix("_words")
        if field != name and self.get(field):
            joint = {"port": " ", "size": " (asked for ", "path": " ", "node": ": "}[field]
            return f"{joint}{self[field]}" + (")" if "(" in joint else "")
        return {"peer": "the peer", "address": "of the peer", "device": "adapter"}.get(name, "")


def explained(meaning: Meaning, events: Sequence[LogEvent]) -> Finding:
    words = Words({"who": who(events)} | dict(events[0].fields))
    cause = " ".join(meaning.cause.format_map(words).split())
    fields: dict[str, Any] = {name: value for name, value in events[0].fields.items() if name in meaning.by}
    return said(events, meaning.code, sentence(cause), meaning.fix, meaning.confidence, meaning.severity, **fields)


def _unexplained(events: Sequence[LogEvent]) -> Finding:
    first = events[0]
    return unknown(
        f"{sentence(who(events))} printed a warning of NCCL that this doctor does not know: {first.text[:200]}"
        f"{f' ({first.source})' if first.source else ''}.",
        ["the lines before it at NCCL_DEBUG=INFO, and the same log of the other ranks"],
        quotes(events),
    )


def _unexplained_by_others(kind: str, evidence: EvidenceSet) -> Sequence[LogEvent]:
    """Events of a kind without those of processes that say by another line why they had to come."""
    writers = {event.origin for event in events_of(evidence, EXPLAINS.get(kind, ""))}
    return [event for event in events_of(evidence, kind) if event.origin not in writers]


def find(evidence: EvidenceSet) -> Iterator[Finding]:
    if unknown_warnings := events_of(evidence, UNEXPLAINED):
        yield _unexplained(unknown_warnings)
    for kind, meaning in MEANINGS.items():
        for events in by_fields(_unexplained_by_others(kind, evidence), *meaning.by).values():
            yield explained(meaning, events)


RULES = (Rule(sorted({meaning.code for meaning in MEANINGS.values()}), ("hang",), find),)
