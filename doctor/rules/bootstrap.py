"""How ranks reach each other at the start: addresses that nobody answers at, interfaces, stores."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.evidence.nccl_log import NcclProcess
from doctor.rules import Rule
from doctor.rules.events import by_fields, events_of, hosts_of, said, who
from launcher.common.finding import Evidence, Finding, Severity

_PORTS = (
    "let TCP through on all ports between the nodes, or choose the right network by NCCL_SOCKET_IFNAME and"
    " GLOO_SOCKET_IFNAME"
)
RETRIES = 3  # so many refusals of one store are more than a late start
_BRIDGES = ("172.17.", "172.18.", "169.254.", "192.168.122.", "10.88.")


def is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("localhost", "::1", "ip6-localhost", "localhost.localdomain")


def connections(evidence: EvidenceSet) -> Iterator[Finding]:
    """Connections of NCCL and gloo that failed, by the address that they went to."""
    groups: defaultdict[str, list[LogEvent]] = defaultdict(list)
    for event in events_of(evidence, "connect_failed", "gloo_connect", "gloo_mesh"):
        groups[event["address"] or _address_in(event["error"])].append(event)
    fallen = events_of(evidence, "loopback_fallback")
    for address, found in sorted(groups.items()):
        if all("retrying" in event.text for event in found) and _ran(evidence):
            continue  # the peer was not up yet
        of_gloo = all(event.kind != "connect_failed" for event in found)
        if not address and _loops(evidence):
            continue  # it was to go over loopback, which is told of below
        if fallen and of_gloo and (not address or is_loopback(address)):
            yield _unresolved([*fallen, *found])
        else:
            yield _refused(address, found, evidence.of(NcclProcess))


def _unresolved(events: Sequence[LogEvent]) -> Finding:
    """gloo looks its host's name up and takes loopback where that gives no address of the host."""
    return said(
        events,
        "bootstrap.loopback_master",
        f"{who(events)} could not resolve the own host name to an address of the host: gloo fell back to loopback"
        " (127.0.0.1), which peers on other hosts do not reach.",
        "set GLOO_SOCKET_IFNAME to the interface between the hosts, or give the host name its address in DNS or"
        " /etc/hosts",
        0.9,
    )


def _loops(evidence: EvidenceSet) -> Sequence[LogEvent]:
    """Lines of processes that start up over loopback, in a job of several hosts."""
    loops = events_of(evidence, "loopback_interface")
    hosts = {one.host for one in evidence.of(NcclProcess)} | set(hosts_of(loops))
    return loops if len(hosts) > 1 else ()


def _over_loopback(process: NcclProcess) -> bool:
    return (process.bootstrap or "").startswith("lo:")


def _address_in(text: str) -> str:
    """The address that gloo quotes inside its message, if any."""
    found = re.search(r"\d{1,3}(?:\.\d{1,3}){3}", text)
    return found[0] if found else ""


def _refused(address: str, events: Sequence[LogEvent], processes: Sequence[NcclProcess]) -> Finding:
    errors = sorted({event["error"] for event in events if event["error"]})
    owner = next(
        (one.host for one in processes if address and one.bootstrap and one.bootstrap.endswith(":" + address)), None
    )
    code, why, fix = _why_refused(address, " ".join(errors))
    if code == "bootstrap.loopback_master" and any(_over_loopback(one) for one in processes):
        code, why = (
            "bootstrap.wrong_interface",
            "NCCL was told to use the loopback interface, which is every host's own",
        )
    whose = f" of {owner}" if owner else ""
    return said(
        events,
        code,
        f"{who(events)} cannot connect to {address or 'a peer'}{whose} ({', '.join(errors) or 'no answer'}): {why}.",
        fix,
        0.85,
        address=address,
    )


def _why_refused(address: str, errors: str) -> tuple[str, str, str]:
    if is_loopback(address):
        return (
            "bootstrap.loopback_master",
            "that address means every host itself; a host's name resolves to loopback, or the master address is one",
            (
                "use an address that all hosts reach; take the host's own name off 127.0.x.x in /etc/hosts; set"
                " NCCL_SOCKET_IFNAME"
            ),
        )
    if address.startswith(_BRIDGES) or "docker" in address or address.startswith("fe80"):
        return (
            "bootstrap.wrong_interface",
            "that is an address of a bridge or a link-local one, which other hosts do not reach",
            "choose the network between the hosts: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME (^docker,lo to exclude)",
        )
    if "refused" in errors:
        why = "nobody listens there any more, as when that rank has ended, or a firewall rejects the port"
        return "bootstrap.unreachable", why, "look at the rank with that address first; " + _PORTS
    if "route" in errors or "unreachable" in errors:
        return "bootstrap.unreachable", "no route leads there, or a firewall rejects it", _PORTS
    return "bootstrap.unreachable", "it does not answer: another network, or a firewall drops it", _PORTS


def interfaces(evidence: EvidenceSet) -> Iterator[Finding]:
    for (address,), found in by_fields(events_of(evidence, "no_interface"), "address").items():
        used = sorted({one.bootstrap for one in evidence.of(NcclProcess) if one.bootstrap})
        have = f" (it uses {', '.join(used[:3])})" if used else ""
        asked = ", ".join(sorted({event["interface"] for event in found if event["interface"]}))
        asked = asked or _asked_for(found, evidence)
        to = f"the network of {address}" if address else f"the interface {asked} that was asked for" if asked else ""
        yield said(
            found,
            "bootstrap.wrong_interface",
            f"{who(found)} has no interface {'in ' + to if to else 'with an IP address'}{have}.",
            "use host networking in the container, and NCCL_SOCKET_IFNAME / NCCL_COMM_ID of the network between the"
            " hosts",
            0.85,
            address=address,
        )
    yield from _virtual(evidence.of(NcclProcess))
    if loops := _loops(evidence):
        yield said(
            loops,
            "bootstrap.wrong_interface",
            f"{who(loops)} talks over loopback, which other hosts do not reach.",
            "set NCCL_SOCKET_IFNAME to the interface between the hosts",
            0.85,
        )


def _asked_for(found: Sequence[LogEvent], evidence: EvidenceSet) -> str:
    """The interface that another line of these hosts says was set."""
    hosts = set(hosts_of(found))
    told = {
        one.settings.get("NCCL_SOCKET_IFNAME", "") for one in evidence.of(NcclProcess) if not hosts or one.host in hosts
    }
    return ", ".join(sorted(told - {""})[:3])


def _virtual(processes: Sequence[NcclProcess]) -> Iterator[Finding]:
    """Start-up over an interface that only this host has, in a job of several hosts."""
    local = [
        one
        for one in processes
        if (one.bootstrap or "").startswith(("docker", "virbr", "veth", "br-", "cni", "flannel"))
    ]
    if local and len({one.host for one in processes}) > 1:
        names = ", ".join(sorted({(one.bootstrap or "").partition(":")[0] for one in local}))
        hosts = tuple(sorted({one.host for one in local if one.host}))
        yield Finding(
            "bootstrap.wrong_interface",
            "error",
            f"NCCL starts up over {names} on {', '.join(hosts[:6])}: other hosts do not reach such an interface.",
            "set NCCL_SOCKET_IFNAME to the interface between the hosts (or ^docker,virbr,veth,lo)",
            0.75,
            hosts=hosts,
            evidence=tuple(Evidence("nccl_log", one.where, f"Bootstrap : Using {one.bootstrap}") for one in local[:4]),
        )


def stores(evidence: EvidenceSet) -> Iterator[Finding]:
    """torch's store: an endpoint that cannot be reached. A warning before the master is up is normal."""
    events = events_of(evidence, "store_unreachable")
    named = [event for event in events if event["address"]]  # a line without an address repeats one that has it
    for (address,), found in by_fields(named or events, "address").items():
        final = [event for event in found if _is_final(event)]
        port = found[0]["port"]
        code, why, fix = _why_refused(address, " ".join(event["error"] for event in found))
        if code == "bootstrap.unreachable":
            fix = (
                "check that rank 0 runs and listens there (ss -ltnp), the name resolves alike on all hosts, and "
                + _PORTS
            )
        place = f"{address}:{port}" if port else address or "the store"
        yield said(
            found,
            code,
            f"{who(found)} cannot reach the store at {place}: {why}.",
            fix,
            *_gravity(found, bool(final), evidence),
            address=address,
        )


def _ran(evidence: EvidenceSet) -> bool:
    return any(one.connected or one.comms for one in evidence.of(NcclProcess))


def _gravity(events: Sequence[LogEvent], final: bool, evidence: EvidenceSet) -> tuple[float, Severity]:
    """(confidence, severity). Before the master listens such warnings are normal, and where the job then ran."""
    if final:
        return 0.85, "error"
    answered = any(mark in event["error"] for event in events for mark in ("timed out", "route", "unreachable"))
    repeated = sum(event.count for event in events) >= RETRIES
    if _ran(evidence) or not (answered or repeated):
        return 0.4, "info"
    return 0.6 if answered else 0.45, "warning"


def _is_final(event: LogEvent) -> bool:
    text = event.text
    return event.level == "E" or any(
        mark in text for mark in ("any network address", "has timed out", "Error", "store has failed", "exceeded")
    )


RULES = (
    Rule(("bootstrap.unreachable", "bootstrap.loopback_master", "bootstrap.wrong_interface"), ("hang",), connections),
    Rule(("bootstrap.wrong_interface",), ("hang",), interfaces),
    Rule(("bootstrap.unreachable", "bootstrap.loopback_master", "bootstrap.wrong_interface"), ("hang",), stores),
)
