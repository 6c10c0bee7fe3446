"""Samples keep what they hold through a line of JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from launcher.common.samples import GONE, RUNNING, NodeSample, RankSample, columns, encode, rows

RANKS = st.builds(
    RankSample,
    rank=st.integers(0, 20000),
    pid=st.none() | st.integers(1, 2**22),
    state=st.sampled_from([RUNNING, GONE]),
    step=st.none() | st.integers(0, 2**40),
    loss=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


@given(st.lists(RANKS, max_size=9))
def test_columns_and_rows_are_inverse(ranks: list[RankSample]) -> None:
    assert rows(columns(ranks)) == ranks


@given(st.lists(RANKS, max_size=3))
def test_a_sample_survives_its_line(ranks: list[RankSample]) -> None:
    sample = NodeSample(time=5.5, node_rank=2, host="n2", cost=0.001, ranks=tuple(ranks))
    line = encode(sample)
    assert line.count(b"\n") == 1 and NodeSample.from_json(json.loads(line)) == sample


def test_a_loss_that_is_no_number_is_kept_as_text() -> None:
    line = encode(NodeSample(1.0, 0, "n0", ranks=[RankSample(0, loss=float("nan"))]))
    assert json.loads(line)["ranks"]["loss"] == ["nan"]
