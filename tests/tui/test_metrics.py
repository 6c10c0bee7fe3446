"""Levels: good is low, bad is high, unknown is neither, an alarm is above all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.tui.conftest import Clock, simulated
from tui.metrics import ALARM, BY_KEY, LETTER_OF_CODE, METRICS, UNKNOWN, badness, codes
from tui.palette import PALETTES, block_style, colour, pair_style
from tui.snapshot import STATES, Alarm, Snapshot


@pytest.fixture
def snapshot(clock: Clock) -> Snapshot:
    return simulated(128, clock, slow={5: 2.0}).poll()


def with_measure(snapshot: Snapshot, name: str, values: dict[int, float]) -> Snapshot:
    changed = snapshot.measures[name].copy()
    changed[list(values)] = list(values.values())
    return replace(snapshot, measures={**snapshot.measures, name: changed})


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.key)
def test_every_metric_gives_a_drawable_code_for_every_rank(metric: object, snapshot: Snapshot) -> None:
    metric = next(one for one in METRICS if one is metric)
    for code in set(codes(metric, snapshot).tolist()):
        assert code in LETTER_OF_CODE
        for palette in PALETTES:
            assert pair_style(palette, code, -1) and block_style(palette, code) and colour(palette, code)


def test_a_rank_behind_is_worst_in_lag(snapshot: Snapshot) -> None:
    assert codes(BY_KEY["lag"], snapshot).argmax() == 5
    assert badness(BY_KEY["lag"], snapshot).argmax() == 5


def test_equal_ranks_look_equal(snapshot: Snapshot) -> None:
    same = replace(snapshot, measures={**snapshot.measures, "step_s": np.full(128, 0.8)})
    assert set(codes(BY_KEY["step_s"], same).tolist()) == {0}


def test_low_device_use_is_bad(snapshot: Snapshot) -> None:
    idle = with_measure(snapshot, "device_util", {7: 0.0, 8: 100.0})
    found = codes(BY_KEY["util"], idle)
    assert found[7] == 15 and found[8] == 0
    assert badness(BY_KEY["util"], idle).argmax() == 7


def test_what_is_not_known_is_told_apart_from_good_and_bad(snapshot: Snapshot) -> None:
    assert codes(BY_KEY["temperature"], with_measure(snapshot, "temperature", {3: np.nan}))[3] == UNKNOWN
    nothing = replace(snapshot, measures={**snapshot.measures, "temperature": np.full(128, np.nan)})
    assert set(codes(BY_KEY["temperature"], nothing).tolist()) == {UNKNOWN}


def test_an_alarm_stands_out_in_every_metric(snapshot: Snapshot) -> None:
    alarmed = replace(snapshot, alarms=(Alarm("behind", [9], "rank 9 behind", 0.0),))
    assert all(codes(metric, alarmed)[9] == ALARM for metric in METRICS if metric.key != "state")


def test_states_are_ordered_by_what_an_eye_must_see(snapshot: Snapshot) -> None:
    states = replace(
        snapshot, state=np.array([STATES.index(name) for name in ("running", "stopped", "gone")] + [2] * 125)
    )
    found = codes(BY_KEY["state"], states)
    assert found[0] < found[1] < found[2]


@pytest.mark.parametrize(
    ("key", "value", "text"), [("util", 93.2, "93 %"), ("lag", np.nan, "–"), ("temperature", 61.0, "61 °C")]
)
def test_values_are_printed_with_their_unit(key: str, value: float, text: str) -> None:
    assert BY_KEY[key].text(value) == text
