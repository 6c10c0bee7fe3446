"""One training step as its record or its log line tells it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any


@dataclass(frozen=True)
class Progress:
    """What is known of one step; None where the source does not say.

    `step_s` and `data_s` are seconds, `memory_bytes` bytes, `*_per_s` per second. `losses` holds losses that are not
    the one training loss, by the name that was printed. `line` (from 1) and `segment` (parts of a line split at
    carriage returns, from 0) say where a log line stood; records of progress.jsonl have none.
    """

    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    step_s: float | None = None
    data_s: float | None = None
    tokens: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_device: float | None = None
    samples_per_s: float | None = None
    tflops: float | None = None
    memory_bytes: float | None = None
    skipped: int | None = None
    time: float | None = None
    losses: Mapping[str, float] = field(default_factory=dict)
    line: int | None = None
    segment: int = 0

    def measures(self) -> dict[str, Any]:
        """The fields that have a value."""
        return {name: value for name in MEASURES if (value := getattr(self, name)) is not None}

    def to_json(self) -> dict[str, Any]:
        """The known fields alone; numbers that JSON lacks (nan, inf) become text."""
        return {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in self.measures().items()
        }

    def merged(self, newer: Progress) -> Progress:
        """What both say, the newer first: a bar gives the step, the line after it the loss."""
        return replace(self, **newer.measures(), losses={**self.losses, **newer.losses})

    @property
    def measured(self) -> bool:
        """Whether it says more than the number of a step."""
        return bool(self.losses) or any(getattr(self, name) is not None for name in EVIDENCE)

    def known(self) -> frozenset[str]:
        """Names of the fields that have a value."""
        return frozenset(self.measures()) | frozenset(self.losses)


MEASURES = tuple(part.name for part in fields(Progress) if part.name not in ("losses", "line", "segment"))
EVIDENCE = ("loss", "lr", "grad_norm", "step_s", "tokens_per_s", "tokens_per_s_per_device", "samples_per_s", "tflops")
_WHOLE = frozenset({"step", "total", "skipped"})


def parse_record(text: str | bytes) -> Progress | None:
    """A line of progress.jsonl as a record; None for anything else, a torn line included."""
    try:
        document = json.loads(text)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    values = {name: number for name in MEASURES if (number := _number(document.get(name))) is not None}
    if "step" not in values:
        return None
    whole: dict[str, Any] = {name: int(value) if name in _WHOLE else value for name, value in values.items()}
    return Progress(**whole)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number
