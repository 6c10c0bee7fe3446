"""The widgets on the line API, without an app where they need none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult

from tui.headline import ago
from tui.rows import Column, Row
from tui.view import keys
from tui.widgets.plot import resample, sparks
from tui.widgets.table import LineTable


@given(st.lists(st.floats(-1e9, 1e9) | st.just(float("nan")), max_size=80), st.integers(1, 40), st.integers(1, 4))
def test_a_plot_has_its_size_whatever_the_values(values: list[float], width: int, height: int) -> None:
    lines = sparks(np.array(values), width, height)
    assert len(lines) == height and all(len(line) == width for line in lines)


def test_a_plot_rises_with_its_values_and_leaves_gaps() -> None:
    assert sparks(np.array([0.0, np.nan, 7.0]), 4, 1) == [" ▁ █"]
    assert sparks(np.array([0.0, 15.0]), 2, 2) == [" █", "▁█"]


def test_resampling_takes_means_of_what_is_known() -> None:
    assert resample(np.array([1.0, 3.0, np.nan, 5.0]), 2).tolist() == [2.0, 5.0]


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5 s"), (100, "100 s"), (180, "3 min"), (9000, "2 h"), (200000, "2 d")]
)
def test_ages(seconds: float, text: str) -> None:
    assert ago(seconds) == text


def test_keys_keep_letter_and_words_apart() -> None:
    assert keys("m metric", "q quit").plain == " m  metric  q  quit "


class TableApp(App[None]):
    """A table alone."""

    def compose(self) -> ComposeResult:
        yield LineTable(Column("KEY", 6), Column("N", 5, right=True), Column("TEXT"), empty="nothing yet")


def rows(*numbers: int) -> list[Row]:
    return [Row(f"k{number}", [f"k{number}", str(number), "long text " * 20]) for number in numbers]


async def test_the_cursor_stays_on_its_row_when_rows_move() -> None:
    async with TableApp().run_test(size=(40, 10)) as pilot:
        table = pilot.app.query_one(LineTable)
        assert "nothing yet" in table.render_line(1).text
        table.set_rows(rows(1, 2, 3))
        table.focus()
        await pilot.press("j")
        assert table.key == "k2"
        table.set_rows(rows(3, 1, 2))
        assert table.key == "k2"
        table.set_rows(rows(7))
        assert table.key == "k7"


async def test_it_scrolls_by_keys_and_draws_only_what_is_seen() -> None:
    async with TableApp().run_test(size=(40, 10)) as pilot:
        table = pilot.app.query_one(LineTable)
        table.set_rows(rows(*range(1000)))
        table.focus()
        for key, expected in (("G", "k999"), ("g", "k0"), ("pagedown", "k8"), ("up", "k7"), ("pageup", "k0")):
            await pilot.press(key)
            await pilot.pause()
            assert table.key == expected
            shown = [table.render_line(y).text for y in range(1, table.size.height)]
            assert any(text.startswith(expected + " ") for text in shown)
        assert all(table.render_line(y).cell_length <= 40 for y in range(10))
