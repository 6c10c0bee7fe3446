"""The data network: completion errors (the first counts), ports, GIDs, adapters, GPUDirect RDMA, sockets by mistake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.rules import Rule
from doctor.rules.events import by_fields, events_of, said, sentence, who
from launcher.common.finding import Finding

RETRY, FLUSH = 12, 5
# Completion status → what it says. All but 5 (a queue that was flushed) are causes.
STATUS: Mapping[int, str] = {
    1: "a local length error",
    2: "a local queue error",
    4: "a local protection error",
    5: "a flushed request",
    6: "a memory window error",
    8: "a bad response",
    9: "an invalid request at the remote side",
    10: "a remote access error",
    11: "a remote operation error",
    12: "transport retries exceeded",
    13: "receiver-not-ready retries exceeded",
}
_NAMED = {
    "local length": 1,
    "local qp operation": 2,
    "local protection": 4,
    "request flushed": FLUSH,
    "remote invalid request": 9,
    "remote access": 10,
    "remote operation": 11,
    "rnr retry count exceeded": 13,
}
_MEMORY = frozenset((1, 2, 4, 6, 9, 10, 11))


def status_of(event: LogEvent) -> int:
    """The number; of UCX's lines, which have none, that of the name."""
    return int(event["status"]) if event["status"] else _NAMED.get(event["name"].lower(), RETRY)


def in_order(events: Iterable[LogEvent]) -> list[LogEvent]:
    """By time where lines tell it, else by place: the first is the cause."""
    return sorted(events, key=lambda one: (one.time is None, one.time or 0.0, one.where.rpartition(":")[0], one.line))


def completions(evidence: EvidenceSet) -> Iterator[Finding]:
    errors = in_order(events_of(evidence, "ib_completion"))
    causes = [one for one in errors if status_of(one) != FLUSH]
    ports = in_order(events_of(evidence, "ib_port_error", "ib_gid_change"))
    if ports:
        yield _port_flap(ports, events_of(evidence, "ib_port_up"), errors)
    if causes and status_of(causes[0]) in _MEMORY:
        yield _protection(causes)
    elif causes:
        yield _retries([one for one in causes if status_of(one) not in _MEMORY])
    elif errors and not ports:
        yield _flushed(errors)


def _port_flap(events: Sequence[LogEvent], ups: Sequence[LogEvent], errors: Sequence[LogEvent]) -> Finding:
    devices = sorted({event["device"] for event in events if event["device"]})
    gids = all(event.kind == "ib_gid_change" for event in events)
    what = "changed its GID table" if gids else "lost its port"
    cause = f"The adapter {', '.join(devices) or 'port'} of {who(events)} {what} while the job ran"
    cause += " and came back" if ups else ""
    cause += "; completion errors after it are its consequence." if errors else "."
    fix = (
        "find what changes the addresses of the interface (network manager, DHCP, IPv6), pin NCCL_IB_GID_INDEX"
        if gids
        else "check cable, transceiver and switch port (ibqueryerrors, link_downed counters) of that host"
    )
    return said(
        events, "net.port_flap", cause, fix, 0.9 if errors else 0.75, "error" if errors or not gids else "warning"
    )


def _retries(errors: Sequence[LogEvent]) -> Finding:
    first = errors[0]
    peers = sorted({event["peer"] for event in errors if event["peer"]})
    path = _path(first)
    cause = f"{who(errors)} got {STATUS.get(status_of(first), 'a completion error')} (status {status_of(first)}"
    cause += f", vendor {first['vendor']})" if first["vendor"] else ")"
    cause += f" from peer {', '.join(peers[:4])}" if peers else ""
    cause += f"{path}: packets between the two adapters are lost."
    links = [first[name] for name in ("local_gid", "remote_gid") if first[name].startswith("fe80")]
    fix = (
        "test this very pair of adapters (ib_write_bw with the same device and GID index), then cable and switch"
        " ports; "
    )
    fix += "RoCE: NCCL_IB_GID_INDEX of a routable RoCE v2 address, PFC/ECN; on busy fabrics NCCL_IB_TIMEOUT=22"
    if links:
        fix = "the GIDs are link-local: give the interfaces addresses and choose NCCL_IB_GID_INDEX of one; " + fix
    more: dict[str, Any] = {"peers": peers, "adapter": first["hca"], "status": status_of(first)}
    return said(errors, "net.retry_exceeded", sentence(cause), fix, 0.9, **more)


def _path(event: LogEvent) -> str:
    parts = [
        f"adapter {event['hca']}" if event["hca"] else "",
        f"local GID {event['local_gid']}" if event["local_gid"] else "",
        f"remote GID {event['remote_gid']}" if event["remote_gid"] else "",
    ]
    known = ", ".join(part for part in parts if part)
    return f" ({known})" if known else ""


def _protection(errors: Sequence[LogEvent]) -> Finding:
    first = errors[0]
    peer = f" from peer {first['peer']}" if first["peer"] else ""
    return said(
        errors,
        "net.local_protection",
        f"{who(errors)} got {STATUS[status_of(first)]} (status {status_of(first)}){peer}{_path(first)}: memory that the"
        " adapter was to read or write is not registered as it should be, most often GPU memory (GPUDirect RDMA).",
        "check that nvidia-peermem or DMA-BUF fits driver and kernel; NCCL_NET_GDR_LEVEL=LOC tells whether it is that; "
        "turn PCIe access control (ACS) off; with an IOMMU use iommu=pt",
        0.85,
        status=status_of(first),
    )


def _flushed(errors: Sequence[LogEvent]) -> Finding:
    peers = sorted({event["peer"] for event in errors if event["peer"]})
    whom = f" of peer {', '.join(peers)}" if peers else ""
    return said(
        errors,
        "net.flush_secondary",
        f"{who(errors)} saw only flushed requests (status 5){whom}: its connection had failed before. "
        "The first error is on the other side or above these lines.",
        "look in the peer's log for the first completion error, port event or end of a process before this time",
        0.8,
        peers=peers,
        missing=[f"the log of {', '.join(peers) or 'the peers'} before the first flushed request"],
    )


_ENOMEM = "Cannot allocate memory"
# What an adapter gives, by the last word of the call or command that asks for it.
RESOURCES = {
    "cq": "a completion queue (CQ)",
    "qp": "a queue pair (QP)",
    "pd": "a protection domain (PD)",
    "srq": "a shared receive queue",
    "channel": "a completion channel",
    "ah": "an address handle",
}


def verbs(evidence: EvidenceSet) -> Iterator[Finding]:
    """Calls of libibverbs that failed: which one and with what error tells which limit or setting."""
    locked = bool(events_of(evidence, "memlock_small"))
    for (call, error), events in by_fields(events_of(evidence, "verbs_failed"), "call", "error").items():
        code, cause, fix = _verbs_cause(call, error, events, locked)
        why = f" ({error})" if error else ""
        yield said(events, code, f"{call} failed on {who(events)}{why}: {cause}", fix, 0.85, call=call, error=error)


def _verbs_cause(call: str, error: str, events: Sequence[LogEvent], locked: bool) -> tuple[str, str, str]:
    memlock = "ulimit -l unlimited (LimitMEMLOCK=infinity, --ulimit memlock=-1)"
    if call.startswith("ibv_reg_"):
        if error == _ENOMEM:
            return "init.memlock", "the process may not lock as much memory as the adapter needs.", memlock
        return (
            "net.local_protection",
            (
                "the adapter cannot register this memory, most often GPU memory without a working nvidia-peermem or"
                " DMA-BUF."
            ),
            "load nvidia-peermem of the driver's version, or NCCL_NET_GDR_LEVEL=LOC",
        )
    if call.startswith(("ibv_create_", "ibv_alloc_")) and (resource := RESOURCES.get(call.rpartition("_")[2])):
        if locked:
            return "init.memlock", f"it could not create {resource} for want of lockable memory.", memlock
        return (
            "init.queue_limit",
            (
                f"it could not create {resource}: the adapter's or kernel's limit is reached (many peers ×"
                " channels), or too little memory may be locked."
            ),
            (
                "fewer channels and queue pairs (NCCL_MAX_NCHANNELS, NCCL_IB_QPS_PER_CONNECTION=1), PXN for all-to-all "
                "(NCCL_P2P_PXN_LEVEL=2); check ulimit -l and ibv_devinfo -v (max_cq, max_qp, max_pd)"
            ),
        )
    if call in ("ibv_modify_qp", "ibv_query_gid", "ibv_query_gid_ex"):
        index, device = events[0]["gid_index"], events[0]["device"]
        used = [device, *(events[0][name] for name in ("local_gid", "remote_gid"))]
        named = f" ({', '.join(filter(None, used))})" if any(used) else ""
        return (
            "net.gid_wrong",
            (
                f"the connection cannot be brought up with GID index {index or 'in use'}{named}: it does not exist on"
                " both sides, or its address is not reachable from the peer."
            ),
            "compare show_gids on both hosts; NCCL_IB_GID_INDEX of a RoCE v2 address of the same network",
        )
    return (
        "init.device_invisible",
        "the process cannot use the adapter.",
        "pass /dev/infiniband into the container and check the rights and cgroup of its devices (ibv_devinfo)",
    )


def plugin_completions(evidence: EvidenceSet) -> Iterator[Finding]:
    events = events_of(evidence, "ofi_completion")
    lost = [
        one
        for one in events
        if one["rc"].lstrip("-") in ("110", "113", "111", "107", "104")
        or re.search("(?i)undeliver|unreach|unrespons|time|invalid address", one["error"])
    ]
    for code, found, text in (
        (
            "net.retry_exceeded",
            lost,
            "the fabric could not deliver packets to the peer: path, peer's adapter or peer's process",
        ),
        ("net.plugin_failed", [one for one in events if one not in lost], "the provider ended a request with an error"),
    ):
        if found:
            first = found[0]
            peers = sorted({one["peer"] for one in found if one["peer"]})
            whose = f" for peer {', '.join(peers[:4])}" if peers else ""
            yield said(
                found,
                code,
                f"{who(found)} got {first['error']} (RC {first['rc']}) from the OFI provider{whose}: {text}.",
                "look at the peer first (did its process end?), then at the adapters' and switches' counters"
                " (fi_pingpong between the two hosts)",
                0.75,
                rc=first["rc"],
                peers=peers,
            )


RULES = (
    Rule(
        ("net.port_flap", "net.retry_exceeded", "net.local_protection", "net.flush_secondary"), ("hang",), completions
    ),
    Rule(
        ("init.memlock", "init.queue_limit", "net.gid_wrong", "net.local_protection", "init.device_invisible"),
        ("hang",),
        verbs,
    ),
    Rule(("net.retry_exceeded", "net.plugin_failed"), ("hang",), plugin_completions),
)
