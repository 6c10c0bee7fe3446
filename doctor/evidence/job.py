"""job.json as evidence: which ranks there are, where they were planned to run, how the job stands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from doctor.evidence.source import Parser, Source, UnreadableError
from launcher.common.binding import Binding, PlannedRank

DOCUMENT_LIMIT = 64 << 20


@dataclass(frozen=True)
class JobFacts:
    """What the doctor needs of a job's record; by rank: host, coordinate, device and binding."""

    job: str
    where: str
    state: str
    attempt: int
    mesh: Mapping[str, int]
    hosts: Mapping[int, str]
    coordinates: Mapping[int, Mapping[str, int]]
    devices: Mapping[int, str] = field(default_factory=dict)
    first_failure: Mapping[str, Any] = field(default_factory=dict)
    started: float | None = None  # seconds since the epoch
    bindings: Mapping[int, Binding] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        return len(self.hosts)

    @property
    def plan(self) -> list[PlannedRank]:
        return [
            PlannedRank(
                rank,
                host,
                "/".join(f"{axis}{index}" for axis, index in self.coordinates.get(rank, {}).items()),
                self.bindings.get(rank),
            )
            for rank, host in self.hosts.items()
        ]


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
            started=record.get("started"),
            bindings=dict(_bindings(record)),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableError(f"not a job's record: {error}") from error


def _bindings(record: Mapping[str, Any]) -> Iterator[tuple[int, Binding]]:
    """Rank and binding, of the ranks that have one."""
    ranks = {(one["node_rank"], one["local_rank"]): int(one["rank"]) for one in record["ranks"] if "node_rank" in one}
    for node in record.get("nodes", ()):
        for local_rank, binding in enumerate(node.get("bindings", ())):
            yield ranks[node["node_rank"], local_rank], Binding.from_json(binding)


PARSERS = (Parser("job", sniff, parse),)
