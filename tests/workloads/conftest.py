"""Ranks that stay from test to test are closed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.workloads.ranks import close_standing


@pytest.fixture(scope="session", autouse=True)
def _no_ranks_are_left() -> Iterator[None]:
    yield
    close_standing()
