"""One host of each kind: what the protocol promises is tested on all of them alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from launcher.hosts.local import LocalHost
from launcher.hosts.protocol import Host
from launcher.hosts.ssh import SshAddress, SshHost
from tests.lab.seed import HostOptions
from tests.lab.ssh import SshLab

# What real users' shells do: print on both outputs before any command runs.
NOISY_SHELL = "echo Welcome to $(hostname)!; echo quota: 93 % used >&2; printf '\\033[0m'\n"


@pytest.fixture(scope="session")
def lab(ssh_lab_ready: None) -> Iterator[SshLab]:
    """Three hosts; n1's shell prints whenever it starts."""
    noisy = HostOptions(files={"/root/.bashrc": NOISY_SHELL}, disk="600m")
    with SshLab(3, per_host={"n1": noisy}) as lab:
        yield lab


@pytest.fixture
def on_login(lab: SshLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshLab]:
    """This thread, and threads it starts, are on the login node: its network, its home."""
    monkeypatch.setenv("HOME", str(lab.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with lab.entered():
        yield lab


def address_of(lab: SshLab, name: str, **options: object) -> SshAddress:
    given: dict[str, object] = {"address": lab.address(name), "user": "root", "identity": str(lab.identity)}
    return SshAddress(name, **{**given, **options})  # type: ignore[arg-type]


@pytest.fixture(params=["local", pytest.param("ssh", marks=pytest.mark.lab)])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    if request.param == "local":
        yield LocalHost()
        return
    lab = request.getfixturevalue("on_login")
    ssh_host = SshHost.connect(address_of(lab, "n1"))
    yield ssh_host
    ssh_host.close()
