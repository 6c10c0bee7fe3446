"""Which gateway leads to a host: pure."""

from __future__ import annotations

import pytest

from launcher.errors import InputError
from launcher.hosts.ssh_address import SshAddress, last_hop, split_destination

HOST = SshAddress("gpu1", user="me", identity="/key", known_hosts="/known")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gw", (None, "gw", None)),
        ("me@gw", ("me", "gw", None)),
        ("me@gw:2222", ("me", "gw", 2222)),
        ("ssh://me@gw:22", ("me", "gw", 22)),
        ("user@realm@gw", ("user@realm", "gw", None)),
        ("fe80::1", (None, "fe80::1", None)),
        ("[fe80::1]:2222", (None, "fe80::1", 2222)),
        ("me@[::1]", ("me", "::1", None)),
    ],
)
def test_destinations_are_taken_apart(text: str, parts: tuple[str | None, str, int | None]) -> None:
    assert split_destination(text) == parts


@pytest.mark.parametrize("text", ["", "me@", "gw:http", ":22", "gw:x"])
def test_what_is_no_destination_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="HOST"):
        split_destination(text)


def test_without_a_jump_there_is_no_gateway() -> None:
    assert last_hop(HOST, {}) is None
    assert last_hop(HOST, {"proxyjump": "none"}) is None


def test_the_gateway_of_ssh_config_keeps_our_key_and_files_but_not_our_user() -> None:
    gateway = last_hop(HOST, {"proxyjump": "gw:2222"})
    assert gateway == SshAddress("gw", port=2222, identity="/key", known_hosts="/known")


def test_the_jump_of_the_address_goes_before_that_of_ssh_config() -> None:
    address = SshAddress("gpu1", jump="me@near,far")
    gateway = last_hop(address, {"proxyjump": "other"})
    assert gateway == SshAddress("far", jump="me@near")
    assert last_hop(gateway, {}) == SshAddress("near", user="me")


def test_none_switches_the_jump_of_ssh_config_off() -> None:
    assert last_hop(SshAddress("gpu1", jump="none"), {"proxyjump": "gw"}) is None


def test_a_host_is_not_its_own_gateway() -> None:
    assert last_hop(SshAddress("gw"), {"proxyjump": "gw"}) is None
