"""Where the nodes of an attempt meet: an address and port that every node has really reached, alike."""

from __future__ import annotations

import ipaddress
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.agent.door import free_port
from launcher.errors import CannotActError
from launcher.hosts.node_side import call
from launcher.hosts.protocol import Host, on_all
from launcher.jobs.site import Site
from launcher.render import NodePlan, Rendezvous

LISTEN_S = 30.0


@dataclass(frozen=True)
class Meeting:
    """The rendezvous, and by host the interface that leads to it."""

    rendezvous: Rendezvous
    interfaces: Mapping[str, str | None]


def local_meeting(hosts: Sequence[str]) -> Meeting:
    """All nodes are this machine: loopback, and gloo is kept on it whatever this machine's name resolves to."""
    return Meeting(Rendezvous("127.0.0.1", free_port()), dict.fromkeys(hosts, "lo"))


def agree_on_endpoint(site: Site, nodes: Sequence[NodePlan]) -> Meeting:
    """Let the first node listen and every node connect to each of its addresses; take the first that all reached.

    Raises CannotActError naming who could not reach what.
    """
    first = nodes[0]
    candidates = usable_addresses(site.facts[first.host]["addresses"])
    if not candidates:
        raise CannotActError(f"{first.host} has no address but loopback", help="dlaunch preflight")
    if site.ask is not None:
        door = site.facts[first.host]["door"]
        answers = site.ask("reach", {"candidates": candidates, **door})
        return choose(first.host, candidates, door["port"], answers, site.facts)
    nonce = secrets.token_hex(8)
    listening = json.dumps({"nonce": nonce, "seconds": LISTEN_S})
    listener = site.hosts[first.host].stream([first.python, first.bundle, "listen", listening])
    try:
        port = int(json.loads(next(iter(listener)))["port"])
        arguments: dict[str, Any] = {"candidates": candidates, "port": port, "nonce": nonce}
        answers = _ask_each(site.hosts, nodes, arguments)
    finally:
        listener.close()  # type: ignore[attr-defined]
    return choose(first.host, candidates, port, answers, site.facts)


def _ask_each(hosts: Mapping[str, Host], nodes: Sequence[NodePlan], arguments: dict[str, Any]) -> Mapping[str, Any]:
    plans = {node.host: node for node in nodes}
    return on_all(
        [hosts[node.host] for node in nodes],
        lambda host: call(host, plans[host.name].python, plans[host.name].bundle, "reach", **arguments),
    ).whole()


def choose(
    first: str, candidates: Sequence[str], port: int, answers: Mapping[str, Any], facts: Mapping[str, Any]
) -> Meeting:
    """The first candidate that every host reached. Pure."""
    for address in candidates:
        if all(answer[address]["ok"] for answer in answers.values()):
            interfaces = {
                host: None if knows_itself(facts[host]) else answer[address]["interface"]
                for host, answer in answers.items()
            }
            return Meeting(Rendezvous(address, port), interfaces)
    reasons = [
        f"{host} -> {address}: {answer[address]['error']}"
        for host, answer in answers.items()
        for address in candidates
        if not answer[address]["ok"]
    ]
    raise CannotActError(
        f"no address of {first} is reached by all hosts: {'; '.join(reasons[:4])}",
        help=f"open TCP ports 20000-32000 between the hosts, or --exclude {first}; dlaunch preflight",
    )


def usable_addresses(by_interface: Mapping[str, Sequence[str]]) -> list[str]:
    """Addresses that other hosts may reach: no loopback, no link-local, no container bridge; IPv4 first."""
    bridges = ("docker", "virbr", "cni", "podman", "br-")
    found = [
        ipaddress.ip_address(address)
        for interface, addresses in by_interface.items()
        if not interface.startswith(bridges)
        for address in addresses
    ]
    usable = [address for address in found if not (address.is_loopback or address.is_link_local)]
    return [str(address) for address in sorted(usable, key=lambda address: address.version)]


def knows_itself(facts: Mapping[str, Any]) -> bool:
    """Whether the host's own name resolves to an address it has, other than loopback (Debian says 127.0.1.1)."""
    address = facts["own_address"]
    held = [held for addresses in facts["addresses"].values() for held in addresses]
    return address in held and not ipaddress.ip_address(address).is_loopback
