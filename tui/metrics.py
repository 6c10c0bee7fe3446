"""What the heat map can show, and how bad a value is: from 0 (good) to 15 (bad), always in this direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tui.snapshot import LETTERS, STATE_BADNESS, STATES, Floats, Snapshot

Codes = NDArray[np.int8]

LEVELS = 16
UNKNOWN = 16  # codes of a cell: 0-15 a level, then these; of several in one cell the highest shows
ALARM = 17
CURSOR = 18  # where the cursor stands
STATE_BASE = 20  # + badness of a state

STATE_OF_CODE = {STATE_BASE + int(badness): STATES[code] for code, badness in reversed(list(enumerate(STATE_BADNESS)))}
_LEVEL_LETTERS = "0123456789abcdef?!"
LETTER_OF_CODE = {
    **dict(enumerate(_LEVEL_LETTERS)),
    **{STATE_BASE + int(badness): LETTERS[code] for code, badness in reversed(list(enumerate(STATE_BADNESS)))},
}


@dataclass(frozen=True)
class Metric:
    """`values` by rank; `scale` gives from known values those of level 0 and 15 (the second may be the smaller)."""

    key: str
    label: str
    unit: str
    values: Callable[[Snapshot], Floats]
    scale: Callable[[Floats], tuple[float, float]]

    def text(self, value: float) -> str:
        if np.isnan(value):
            return "–"
        if self.key == "state":
            return STATES[int(value)]
        if self.unit == "%":
            return f"{value:.0f} %"
        return f"{value:.3g} {self.unit}".strip()


def _lag(snapshot: Snapshot) -> Floats:
    known = snapshot.step[~np.isnan(snapshot.step)]
    return (known.max() if len(known) else np.nan) - snapshot.step


def _share(part: Floats, whole: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(whole > 0, 100 * part / whole, np.nan)


def _fixed(good: float, bad: float) -> Callable[[Floats], tuple[float, float]]:
    return lambda known: (good, bad)


def _around_median(known: Floats) -> tuple[float, float]:
    """Level 0 up to the median, 15 at twice the median or what is worse: equal ranks look equal."""
    median = float(np.median(known))
    return median, max(2 * median, float(known.max()))


METRICS = (
    Metric("state", "state", "", lambda s: s.state.astype(np.float64), _fixed(0, 1)),
    Metric("lag", "step lag", "steps", _lag, lambda known: (0.0, max(8.0, float(known.max())))),
    Metric("step_s", "step time", "s", lambda s: s.step_s, _around_median),
    Metric("data", "data wait", "%", lambda s: _share(s.data_s, s.step_s), _fixed(0, 100)),
    Metric(
        "age", "since progress", "s", lambda s: s.time - s.progress_time, lambda known: (0.0, max(60.0, known.max()))
    ),
    Metric("util", "device use", "%", lambda s: s.device_util, _fixed(100, 0)),
    Metric("memory", "device memory", "%", lambda s: _share(s.device_memory, s.device_memory_total), _fixed(50, 100)),
    Metric("temperature", "temperature", "°C", lambda s: s.temperature, _fixed(40, 95)),
    Metric("cpu", "CPU", "cores", lambda s: s.cpu, lambda known: (0.0, max(4.0, known.max()))),
    Metric("rss", "resident memory", "GB", lambda s: s.rss / 1e9, _around_median),
)
BY_KEY = {metric.key: metric for metric in METRICS}


def codes(metric: Metric, snapshot: Snapshot) -> Codes:
    """The code of every rank's cell; ranks with an alarm stand out in every metric but the state."""
    if metric.key == "state":
        return (STATE_BASE + STATE_BADNESS[snapshot.state]).astype(np.int8)
    values = metric.values(snapshot)
    known = ~np.isnan(values)
    result = np.full(len(values), UNKNOWN, dtype=np.int8)
    if known.any():
        good, bad = metric.scale(values[known])
        span = (bad - good) or 1.0
        result[known] = np.clip((values[known] - good) / span * (LEVELS - 1), 0, LEVELS - 1).astype(np.int8)
    result[list(snapshot.alarmed)] = ALARM
    return result


def badness(metric: Metric, snapshot: Snapshot) -> Floats:
    """Order for the table of the worst: high is bad, unknown is good."""
    if metric.key == "state":
        return STATE_BADNESS[snapshot.state].astype(np.float64)
    values = metric.values(snapshot)
    good, bad = metric.scale(np.array([0.0, 1.0]))
    return np.nan_to_num(values if bad > good else -values, nan=-np.inf)
