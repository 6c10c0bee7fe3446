"""job.json as evidence: which ranks there are, where they were planned to run, how the job stands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from doctor.evidence.source import Parser, Source, UnreadableError

DOCUMENT_LIMIT = 64 << 20


@dataclass(frozen=True)
class JobFacts:
    """What the doctor needs of a job's record; by rank: host, coordinate and device."""

    job: str
    where: str
    state: str
    attempt: int
    mesh: Mapping[str, int]
    hosts: Mapping[int, str]
    coordinates: Mapping[int, Mapping[str, int]]
    devices: Mapping[int, str] = field(default_factory=dict)
    first_failure: Mapping[str, Any] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        return len(self.hosts)


def sniff(sample: bytes, name: str) -> float:
    wanted = (b'"job"', b'"mesh"', b'"ranks"', b'"state"')
    return (
        1.0
        if sample.lstrip()[:1] == b"{" and name.endswith("job.json") and b'"job"' in sample
        else 0.9 * all(key in sample for key in wanted)
    )


def parse(source: Source) -> Iterator[JobFacts]:
    """The one record of a job.json; raises UnreadableError when it has another form."""
    record = json.loads(source.read(DOCUMENT_LIMIT))
    try:
        ranks = record["ranks"]
        yield JobFacts(
            job=str(record["job"]),
            where=source.name,
            state=str(record["state"]),
            attempt=int(record.get("attempt", 0)),
            mesh={str(axis): int(degree) for axis, degree in record["mesh"].items()},
            hosts={int(one["rank"]): str(one["host"]) for one in ranks},
            coordinates={int(one["rank"]): dict(one["coordinate"]) for one in ranks},
            devices={int(one["rank"]): one["device"] for one in ranks if one.get("device")},
            first_failure=record.get("first_failure") or {},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableError(f"not a job's record: {error}") from error


PARSERS = (Parser("job", sniff, parse),)
