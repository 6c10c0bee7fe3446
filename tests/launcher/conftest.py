"""Fixtures of the launcher's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dlaunch import Dlaunch, no_members


@pytest.fixture
def dlaunch(tmp_path: Path) -> Iterator[Dlaunch]:
    """The real `dlaunch` with a home of its own; whatever a test leaves running is ended, and that is proved."""
    work = tmp_path / "work"
    work.mkdir()
    tool = Dlaunch(tmp_path / "home", work)
    yield tool
    for directory in (tool.home / "jobs").glob("*"):
        tool.run("stop", directory.name, "--grace", "1")
        no_members(directory.name)
