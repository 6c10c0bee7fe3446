"""Network: NICs up and at the speed of their peers, RDMA devices usable, interfaces that variables name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.common.finding import Finding, unknown
from launcher.hosts.names import fold
from launcher.preflight.checks.peers import alike, outliers
from launcher.preflight.facts import HostFacts
from launcher.topology.model import Nic

NAMING = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
Labelled = dict[str, Nic]


def verbs(facts: HostFacts) -> Iterator[Finding]:
    """An RDMA device without its file cannot be opened: usual in containers that got the network but not the device."""
    if facts.rdma and not any(name.startswith("uverbs") for name in facts.verbs):
        yield Finding(
            "init.device_invisible",
            "error",
            f"{facts.host} has RDMA devices ({', '.join(facts.rdma)}), but no /dev/infiniband/uverbs for them.",
            "load ib_uverbs; containers: --device=/dev/infiniband",
            hosts=[facts.host],
        )


def named_interfaces(facts: HostFacts) -> Iterator[Finding]:
    """NCCL and gloo use the interfaces that these variables name, or fail."""
    for variable in NAMING:
        for wish in filter(None, facts.environment.get(variable, "").split(",")):
            if not wish.startswith("^") and not any(up and _matches(wish, name) for name, up in _states(facts)):
                yield Finding(
                    "bootstrap.wrong_interface",
                    "error",
                    f"{variable} names {wish}, but {facts.host} has no such interface that is up.",
                    f"unset {variable}, or name one of: {', '.join(name for name, up in _states(facts) if up)}",
                    hosts=[facts.host],
                )


def _states(facts: HostFacts) -> list[tuple[str, bool]]:
    return [(name, interface.up) for name, interface in facts.interfaces.items()]


def _matches(wish: str, name: str) -> bool:
    """NCCL takes prefixes, and with `=` in front whole names."""
    return name == wish[1:] if wish.startswith("=") else name.startswith(wish)


def counts(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """A NIC that all peers have."""
    for group in alike(hosts):
        common, differing = outliers({facts.host: len(_rdma(facts)) for facts in group})
        fewer = [host for host, count in differing.items() if count < common]
        if fewer:
            yield Finding(
                "init.device_invisible",
                "error",
                f"{fold(fewer)} shows fewer RDMA devices than the other hosts ({common}).",
                "look at lspci and dmesg there; containers: pass /dev/infiniband and the network namespace",
                hosts=fewer,
                detail={"usual": common, **{host: differing[host] for host in fewer}},
            )


def down(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """A port that is down where the same port of the peers is up; one that is down everywhere is not in use."""
    for label, states in _by_label(hosts):
        up = [host for host, nic in states.items() if nic.up]
        off = [host for host, nic in states.items() if nic.up is False]
        if off and len(up) >= len(off):
            yield Finding(
                "preflight.nic_down",
                "error",
                f"{label} is down on {fold(off)}, while it is up on {fold(up)}.",
                "look at the cable, the switch port and dmesg: ethtool, ibstat",
                hosts=off,
                detail={"nic": label},
            )


def slow(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """A port that came up at less than the rate of its peers."""
    for label, states in _by_label(hosts):
        rates = {host: nic.gbps for host, nic in states.items() if nic.up and nic.gbps}
        if not rates:
            if any(nic.rdma for nic in states.values()):
                yield unknown(f"the rate of {label}: no host tells it", hosts=list(states))
            continue
        common, differing = outliers(rates)
        slower = {host: rate for host, rate in differing.items() if rate < common}
        if slower:
            yield Finding(
                "preflight.nic_slow",
                "error",
                f"{label} runs at {', '.join(f'{rate:g} Gbit/s on {host}' for host, rate in slower.items())}; "
                f"its peers at {common:g}.",
                "look at the cable, the transceiver and the switch port: a port that negotiated down has a bad lane",
                hosts=list(slower),
                detail={"nic": label, "usual_gbps": common, **slower},
            )


def _rdma(facts: HostFacts) -> list[Nic]:
    return [nic for nic in facts.topology.nics if nic.rdma]


def _by_label(hosts: Sequence[HostFacts]) -> Iterator[tuple[str, Labelled]]:
    """NIC -> host -> its state, among hosts of one kind."""
    for group in alike(hosts):
        labels = dict.fromkeys(nic.label for facts in group for nic in facts.topology.nics)
        for label in labels:
            yield label, {facts.host: nic for facts in group for nic in facts.topology.nics if nic.label == label}
