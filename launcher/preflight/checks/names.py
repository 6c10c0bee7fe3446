"""Names of the hosts: what they resolve to, from every host."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from launcher.common.finding import Evidence, Finding, unknown
from launcher.hosts.names import fold
from launcher.preflight.checks.peers import usual
from launcher.preflight.facts import HostFacts


def own_name(facts: HostFacts) -> Iterator[Finding]:
    """A host whose name is loopback to itself offers its peers an address that leads each of them to itself."""
    if len(facts.resolved) > 1 and facts.own_address and ipaddress.ip_address(facts.own_address).is_loopback:
        yield Finding(
            "bootstrap.loopback_master",
            "warning",
            f"{facts.hostname} resolves to {facts.own_address} on {facts.host} itself: gloo and a rendezvous there "
            "would offer loopback to the other hosts.",
            f"give {facts.hostname} its real address in /etc/hosts there, or set GLOO_SOCKET_IFNAME (dlaunch run does)",
            hosts=[facts.host],
            evidence=[Evidence("names", facts.host, f"{facts.hostname} -> {facts.own_address}")],
        )


def resolution(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """Every host's name must mean the same on all hosts, and an address that the host has."""
    by_name = {facts.host: facts for facts in hosts}
    for name in dict.fromkeys(name for facts in hosts for name in facts.resolved):
        answers = {facts.host: facts.resolved.get(name) for facts in hosts}
        late = [host for host, answer in answers.items() if answer is None]
        if late:
            yield unknown(f"what {name} resolves to on {fold(late)}: no answer in time", hosts=late)
        known = {
            host: tuple(answer)
            for host, answer in answers.items()
            if answer is not None and not _own(host, name, answer)
        }
        yield from _differing(name, known, by_name.get(name))


def _own(host: str, name: str, answer: Sequence[str]) -> bool:
    """Whether this is a host's loopback for itself, which `own_name` tells."""
    return host == name and all(ipaddress.ip_address(address).is_loopback for address in answer)


def _differing(name: str, answers: dict[str, tuple[str, ...]], named: HostFacts | None) -> Iterator[Finding]:
    """The hosts that know another address than the right one: one that the named host holds, else the usual one."""
    if not any(answers.values()):
        return  # only a name of the inventory
    held = {address for addresses in named.addresses.values() for address in addresses} if named else set()
    right = [answer for answer in answers.values() if held & set(answer)]
    meant = usual(right or list(answers.values()))
    wrong = {host: answer for host, answer in answers.items() if not set(answer) & set(meant)}
    if not wrong and held and not right:
        wrong = {name: ()}
    if wrong:
        shown = ", ".join(f"{', '.join(answer) or 'unknown'} on {host}" for host, answer in list(wrong.items())[:4])
        yield Finding(
            "bootstrap.name_mismatch",
            "error",
            f"{name} does not mean the same everywhere: {', '.join(meant)} on most hosts, but {shown}.",
            f"put the right address of {name} into /etc/hosts or the name service of {fold(wrong)}",
            hosts=list(wrong),
            detail={"name": name, "usual": list(meant), "held": sorted(held)},
            evidence=[
                Evidence("names", host, f"{name} -> {', '.join(answer)}") for host, answer in list(wrong.items())[:4]
            ],
        )
