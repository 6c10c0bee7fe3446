"""The names of our packages exist on the package index too: what is imported must be ours."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["launcher", "doctor", "workloads", "tui"])
def test_the_imported_package_is_ours(name: str) -> None:
    assert ROOT / name == Path(str(importlib.import_module(name).__file__)).parent
