"""One host of each kind: what the protocol promises is tested on all of them alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from launcher.hosts.local import LocalHost
from launcher.hosts.protocol import Host


@pytest.fixture(params=["local"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    yield LocalHost()
