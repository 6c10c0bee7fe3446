"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, settings

from tests.lab import packages
from tests.lab.require import require_lab

# A property holds or not, however busy the machine is.
settings.register_profile("dlaunch", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dlaunch")


@pytest.fixture(scope="session")
def ssh_lab_ready() -> None:
    """Ask for it before `SshLab(…)`: skips where no SSH lab can be raised (a failure with CI=true)."""
    require_lab(packages.SSH_LAB)


@pytest.fixture(scope="session")
def slurm_lab_ready() -> None:
    """Ask for it before `SlurmLab(…)`: the same rule."""
    require_lab(packages.SLURM_LAB)


@pytest.fixture(scope="session")
def browser_ready() -> None:
    """Ask for it before `Browser()`: the same rule."""
    require_lab(packages.BROWSER)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file share their lab: one worker takes all of them."""
    for item in items:
        if item.get_closest_marker("lab"):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Failures go by the tests' own names: with the worker's group behind it, `--last-failed` would pass over one."""
    cache = getattr(config, "cache", None)  # the plug-in may be off
    if cache is not None and not hasattr(config, "workerinput"):
        failed = cache.get("cache/lastfailed", {})
        cache.set("cache/lastfailed", {re.sub(r"@/.*", "", name): True for name in failed})
