"""Progress records of ranks (progress.jsonl) as columns: what each step took and gave."""

from __future__ import annotations

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
    records = [record for _, line in source.lines() if (record := parse_record(line)) and record.step is not None]
    if len(records) > MAX_STEPS:
        source.note(f"only the last {MAX_STEPS:,} steps were read", blinding=False)
        records = records[-MAX_STEPS:]

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
        )


def _first_nonfinite(records: Sequence[Progress]) -> Iterator[tuple[int, str]]:
    for field in ("loss", "grad_norm"):
        for record in records:
            value = getattr(record, field)
            if value is not None and not math.isfinite(value):
                yield record.step or 0, field
                break


PARSERS = (Parser("progress", sniff, parse),)
