"""What came of the hosts' meeting: who reached whom, on which interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launcher.common.finding import Evidence, Finding, unknown
from launcher.hosts.names import fold
from launcher.preflight.facts import HostFacts
from launcher.preflight.pairs import blame

Answers = Mapping[str, Mapping[str, Any]]  # host -> what launcher/agent/meet.py answered


def reachability(answers: Answers, calls: Mapping[str, Sequence[str]], port: int) -> Iterator[Finding]:
    """The hosts to which or from which nothing comes through, and single paths that are closed.

    A host's way in and its way out are judged apart: a firewall mostly closes one of them.
    """
    tried = [(host, peer) for host in answers for peer in calls[host] if peer in answers]
    failed = [(host, peer) for host, peer in tried if peer not in answers[host]["reached"]]
    culprits = blame(map(_ways, tried), map(_ways, failed))
    for host in dict.fromkeys(way.partition(" ")[2] for way in culprits.hosts):
        inward = [pair for pair in failed if pair[1] == host and f"into {host}" in culprits.hosts]
        outward = [pair for pair in failed if pair[0] == host and f"from {host}" in culprits.hosts]
        yield _closed(host, port, answers, inward, outward)
    paths: dict[frozenset[str], list[tuple[str, str]]] = {}
    for pair in failed:
        if frozenset(_ways(pair)) in culprits.links:
            paths.setdefault(frozenset(pair), []).append(pair)
    for path in paths.values():
        yield _link(path, port, answers)


def _ways(call: tuple[str, str]) -> tuple[str, str]:
    """The way out of the caller and the way into the called host."""
    return f"from {call[0]}", f"into {call[1]}"


def _closed(
    host: str, port: int, answers: Answers, inward: list[tuple[str, str]], outward: list[tuple[str, str]]
) -> Finding:
    direction = "both" if inward and outward else "in" if inward else "out"
    words = {
        "in": f"{host} is not reached on TCP port {port} by {fold(a for a, _ in inward)}, though it listens there.",
        "out": f"{host} reaches no TCP port {port} of {fold(b for _, b in outward)}.",
        "both": f"Nothing comes through to or from {host} on TCP port {port}.",
    }
    return Finding(
        "bootstrap.unreachable",
        "error",
        words[direction],
        f"open TCP (20000-32000 and the ephemeral ports 32768-60999) between the hosts in the firewall of {host}",
        hosts=[host],
        detail={"port": port, "direction": direction},
        evidence=_why([*inward, *outward], answers),
    )


def _link(failed: list[tuple[str, str]], port: int, answers: Answers) -> Finding:
    shown = " and ".join(f"{host} does not reach {peer}" for host, peer in failed)
    return Finding(
        "bootstrap.unreachable",
        "error",
        f"{shown} on TCP port {port}, while others do.",
        "look at routes and firewalls between the two",
        hosts=sorted({name for pair in failed for name in pair}),
        detail={"port": port},
        evidence=_why(failed, answers),
    )


def _why(failed: Sequence[tuple[str, str]], answers: Answers) -> list[Evidence]:
    return [
        Evidence("connection", f"{host} -> {peer}", answers[host]["failed"].get(peer, "no answer"))
        for host, peer in failed[:4]
    ]


def without_answer(host: str, why: str) -> Finding:
    """A host that could not take part in the meeting."""
    return unknown(f"who reaches {host}: {why}", hosts=[host])


def interfaces(facts: HostFacts, answer: Mapping[str, Any]) -> Iterator[Finding]:
    """A slow interface that leads to the peers while a faster one is up: often the management network."""
    used = used_interface(facts, answer)
    speed = facts.interfaces[used].gbps if used else None
    faster = [
        name
        for name, one in facts.interfaces.items()
        if one.up and speed and one.gbps and one.gbps > speed and facts.addresses.get(name)
    ]
    if faster:
        yield Finding(
            "bootstrap.wrong_interface",
            "info",
            f"{facts.host} reaches its peers over {used} ({speed:g} Gbit/s), while {', '.join(faster)} is faster.",
            f"NCCL_SOCKET_IFNAME={faster[0]}, if its peers are on that network",
            hosts=[facts.host],
            detail={"used": used, "faster": faster},
        )


def used_interface(facts: HostFacts, answer: Mapping[str, Any]) -> str | None:
    """The interface by which a host reached its peers; None when it reached none."""
    local = {about["local"] for about in answer.get("reached", {}).values()}
    return next(
        (name for name, held in facts.addresses.items() if local & set(held) and name in facts.interfaces), None
    )
