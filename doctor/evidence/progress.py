"""Progress records of ranks (progress.jsonl) as columns: what each step took and gave."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from doctor.evidence.source import Parser, Source, rank_in_name
from launcher.common.progress import Progress, parse_record

NAN = math.nan
MAX_STEPS = 1_000_000


@dataclass(frozen=True)
class ProgressSeries:
    """One rank's steps in order; NaN where a record lacks a field. Times in seconds."""

    rank: int | None
    where: str
    steps: tuple[int, ...]
    time: tuple[float, ...]
    step_s: tuple[float, ...]
    data_s: tuple[float, ...]
    loss: tuple[float, ...]
    grad_norm: tuple[float, ...]
    nonfinite: tuple[tuple[int, str], ...] = ()  # (step, field) where a field was first NaN or infinite
    samples: tuple[tuple[int, ...], ...] = ()  # by step, the data that the rank took, where it says so
    seeds: tuple[int, ...] = ()

    @property
    def own_data_s(self) -> tuple[float, ...]:
        """Time for data of each step: inside it, and between the end of the one before and its start."""
        starts = zip(self.time, self.time[1:], self.step_s[1:], strict=False)
        between = [0.0, *(max(0.0, now - before - step) for before, now, step in starts)]
        return tuple(data + (gap if gap >= 0 else 0.0) for data, gap in zip(self.data_s, between, strict=True))

    @property
    def last(self) -> int:
        return self.steps[-1] if self.steps else -1


def sniff(sample: bytes, name: str) -> float:
    first = sample.lstrip()[:4096].partition(b"\n")[0]
    return (
        1.0 if first.startswith(b"{") and b'"step"' in first and (b'"step_s"' in first or b'"loss"' in first) else 0.0
    )


def parse(source: Source) -> Iterator[ProgressSeries]:
    """The records of one file; torn lines are passed over."""
    records: list[Progress] = []
    samples: list[tuple[int, ...]] = []
    seeds: list[int] = []
    for _, line in source.lines():
        record = parse_record(line)
        if record is None or record.step is None or len(records) >= MAX_STEPS:
            continue
        records.append(record)
        more = json.loads(line)
        if isinstance(more.get("samples"), list):
            samples.append(tuple(one for one in more["samples"] if isinstance(one, int)))
        if isinstance(more.get("seed"), int):
            seeds.append(more["seed"])

    def column(name: str) -> tuple[float, ...]:
        return tuple(NAN if (value := getattr(record, name)) is None else float(value) for record in records)

    if records:
        yield ProgressSeries(
            rank_in_name(source.name),
            source.name,
            tuple(record.step or 0 for record in records),
            column("time"),
            column("step_s"),
            column("data_s"),
            column("loss"),
            column("grad_norm"),
            nonfinite=tuple(_first_nonfinite(records)),
            samples=tuple(samples),
            seeds=tuple(seeds),
        )


def _first_nonfinite(records: Sequence[Progress]) -> Iterator[tuple[int, str]]:
    for field in ("loss", "grad_norm"):
        for record in records:
            value = getattr(record, field)
            if value is not None and not math.isfinite(value):
                yield record.step or 0, field
                break


PARSERS = (Parser("progress", sniff, parse),)
