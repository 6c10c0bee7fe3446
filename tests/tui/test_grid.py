"""Every rank has one cell, cells fit the space, and a cell shows the worst of its ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.feed.simulated import simulated_job
from tui.grid import by_axes, by_host, layouts

MESHES = st.fixed_dictionaries(
    {"pp": st.integers(1, 4), "dp_shard": st.integers(1, 40), "tp": st.sampled_from([1, 2, 8])}
)


@given(MESHES, st.integers(1, 9), st.integers(1, 200), st.integers(1, 60))
@settings(max_examples=200)
def test_by_host_every_rank_has_a_cell_and_all_cells_fit(
    mesh: dict[str, int], per_host: int, wide: int, tall: int
) -> None:
    job = simulated_job(mesh, per_host)
    grid = by_host(job, wide, 2 * tall, tall)
    assert grid.rows <= 2 * tall and grid.columns <= wide and len(grid.row_labels) == grid.rows
    cells = [grid.ranks(row, column) for row in range(grid.rows) for column in range(grid.columns)]
    assert sorted(rank for ranks in cells for rank in ranks) == list(range(job.world_size))


@given(MESHES, st.integers(1, 200), st.integers(1, 60))
def test_by_axes_every_rank_is_where_its_coordinates_say(mesh: dict[str, int], wide: int, tall: int) -> None:
    job = simulated_job(mesh)
    grid = by_axes(job, "dp_shard", "tp", wide, tall)
    assert grid.rows <= tall and grid.columns <= max(wide, 1)
    for rank in range(0, job.world_size, 7):
        row, column = grid.place(rank)
        assert rank in grid.ranks(row, column)
        position = np.unravel_index(rank, tuple(mesh.values()))
        assert row == position[list(mesh).index("dp_shard")] // -(-mesh["dp_shard"] // tall)


def test_ranks_of_one_host_stay_side_by_side() -> None:
    grid = by_host(simulated_job({"dp_shard": 64}, 8), 80, 40, 20)
    assert [grid.place(rank) for rank in range(8)] == [(0, column) for column in range(8)]
    assert grid.row_labels[1] == "n2" and grid.place(8) == (1, 0)


def test_a_cell_shows_the_worst_and_never_the_mean() -> None:
    grid = by_host(simulated_job({"dp_shard": 800}, 8), 10, 10, 5)
    codes = np.zeros(800, dtype=np.int8)
    codes[345] = 15
    worst = grid.worst(codes)
    assert worst[grid.place(345)] == 15 and (worst == 15).sum() == 1


def test_where_there_is_no_rank_there_is_no_code() -> None:
    grid = by_host(simulated_job({"dp_shard": 3}, 2), 80, 40, 20)
    assert grid.worst(np.zeros(3, dtype=np.int8)).tolist() == [[0, 0], [0, -1]]


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ({"dp_shard": 8}, [None]),
        ({"dp_shard": 4, "tp": 2}, [None, ("dp_shard", "tp"), ("tp", "dp_shard")]),
        ({"pp": 1, "dp_shard": 4, "tp": 2}, [None, ("dp_shard", "tp"), ("tp", "dp_shard")]),
    ],
)
def test_layouts_are_hosts_and_pairs_of_real_axes(mesh: dict[str, int], expected: list[object]) -> None:
    assert layouts(simulated_job(mesh)) == expected
