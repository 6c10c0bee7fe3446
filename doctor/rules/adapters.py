"""Differences between the processes of a job in what they send over: network, adapters, GPUDirect RDMA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogEvent
from doctor.evidence.nccl_log import NcclEdge, NcclProcess
from doctor.rules import Rule
from doctor.rules.events import events_of, hosts_of, quotes, ranks_of, said, who
from doctor.rules.speakers import names, on
from doctor.text import fold_hosts, name_ranks
from launcher.common.finding import Evidence, Finding

_SAME_NETWORK = "give every node the same adapters and plugin, and the same NCCL_NET, NCCL_IB_DISABLE, NCCL_IB_HCA"
_PASS_VERBS = (
    "pass /dev/infiniband and the verbs libraries into the container, with ulimit -l unlimited; ibv_devices must list"
    " the adapter there"
)
_SOCKET, _VERBS = "3", "4"  # ncclSocketType: NetSocket, NetIb


def on_verbs(process: NcclProcess) -> bool:
    """Whether a process uses an adapter that is not a plain socket."""
    return bool(process.network and not process.network.startswith("Socket")) or any(
        edge.network != "Socket" for edge in process.edges
    )


def on_sockets(process: NcclProcess) -> bool:
    return process.network == "Socket" or any(edge.network == "Socket" for edge in process.edges)


def socket_fallback(evidence: EvidenceSet) -> Iterator[Finding]:
    for event in events_of(evidence, "socket_type"):
        yield _wrong_type(event)
    processes = evidence.of(NcclProcess)
    verbs = [one for one in processes if on_verbs(one)]
    sockets = [one for one in processes if on_sockets(one) and not on_verbs(one)]
    if verbs and sockets:
        cause = (
            f"{names(sockets)} uses plain sockets where {names(verbs)} uses {verbs[0].network or 'InfiniBand (IB)'}."
        )
        yield on(sockets, "network Socket", "net.socket_fallback", cause, _SAME_NETWORK, 0.9)
        return
    yield from _plugins(verbs)
    for process in processes:
        if process.no_ib_device and (why := _wants_ib(process)):
            cause = (
                f"{names([process])} found no InfiniBand (IB) verbs device though {why}: it falls back to plain"
                " sockets."
            )
            yield on([process], "NET/IB : No device found.", "net.socket_fallback", cause, _PASS_VERBS, 0.8)
    missing = events_of(evidence, "ib_no_library", "ib_no_driver")
    wanted = any(_wants_ib(one) for one in processes) or bool(verbs) or bool(events_of(evidence, "ib_no_driver"))
    if missing and wanted and not any(one.no_ib_device for one in processes):
        yield said(
            missing,
            "net.socket_fallback",
            f"{who(missing)} lacks the verbs library or driver of its InfiniBand (IB) adapters and falls back to plain"
            " sockets.",
            "install libibverbs and the provider of the adapter (rdma-core, MLNX_OFED user space) in the image",
            0.6,
            "warning",
        )


def _plugins(verbs: Sequence[NcclProcess]) -> Iterator[Finding]:
    """Processes that use the built-in network where others use a plugin."""
    builtin = [one for one in verbs if one.network == "IB"]
    plugged = [one for one in verbs if one.network and one.network != "IB"]
    if builtin and plugged:
        cause = (
            f"{names(builtin)} uses NCCL's own IB network where {names(plugged)} uses the plugin {plugged[0].network}."
        )
        fix = "install the same network plugin on all nodes (LD_LIBRARY_PATH), or NCCL_NET_PLUGIN=none on all"
        yield on(builtin, "network IB", "net.plugin_failed", cause, fix, 0.7)


def _wrong_type(event: LogEvent) -> Finding:
    kinds = {event["theirs"], event["ours"]}
    if kinds == {_SOCKET, _VERBS}:
        ours = "plain sockets" if event["ours"] == _SOCKET else "InfiniBand (IB)"
        theirs = "InfiniBand (IB)" if event["ours"] == _SOCKET else "plain sockets"
        return said(
            [event],
            "net.socket_fallback",
            f"{who([event])} uses {ours} and its peer {theirs}: the nodes chose different networks.",
            _SAME_NETWORK,
            0.9,
        )
    return said(
        [event],
        "bootstrap.foreign_peer",
        f"{who([event])} was reached by a connection of another kind ({event['theirs']}, not {event['ours']}): ranks"
        " are at different steps of the start-up, or of different NCCL versions or jobs.",
        "use one NCCL and one environment on all nodes; end stale processes",
        0.6,
    )


def _wants_ib(process: NcclProcess) -> str:
    """Why this process should have had verbs; empty where nothing says so."""
    interface = (process.bootstrap or "").partition(":")[0]
    if interface.startswith(("ib", "mlx", "roce")):
        return f"its interface {interface} is one of an InfiniBand adapter"
    if process.settings.get("NCCL_IB_HCA") or process.settings.get("NCCL_NET") in ("IB", "IBext"):
        return "its settings ask for InfiniBand adapters"
    return ""


def rails(evidence: EvidenceSet) -> Iterator[Finding]:
    """Adapters that some processes have and others lack."""
    failed = events_of(evidence, "ib_open_failed")
    processes = [one for one in evidence.of(NcclProcess) if on_verbs(one)]
    if failed:
        yield _unopened(failed, processes)
    by_host: dict[str, frozenset[str]] = {}
    for process in evidence.of(NcclProcess):
        if process.host and process.adapters and on_verbs(process):
            by_host[process.host] = frozenset(process.adapters)
    counts = Counter(len(adapters) for adapters in by_host.values())
    if len(counts) > 1 and not failed:
        usual = max(counts, key=lambda size: (counts[size], size))
        odd = {host: adapters for host, adapters in by_host.items() if len(adapters) != usual}
        lists = "; ".join(f"{host}: {', '.join(sorted(found))}" for host, found in sorted(odd.items())[:4])
        yield Finding(
            "net.rail_mismatch",
            "error",
            f"{fold_hosts(odd)} uses {len(next(iter(odd.values())))} adapters where the others use {usual} ({lists}): "
            "channels on the missing rails have no peer.",
            "make the same adapters visible on all nodes, or name the common ones by NCCL_IB_HCA",
            0.75,
            hosts=tuple(sorted(odd)),
        )


def _unopened(failed: Sequence[LogEvent], users: Sequence[NcclProcess]) -> Finding:
    devices = ", ".join(sorted({event["device"] or "an adapter" for event in failed}))
    others = [one for one in users if one.rank not in ranks_of(failed) or one.rank is None]
    rest = f" {names(others)} uses the adapters of its side: channels over this one have no peer." if others else ""
    return said(
        failed,
        "net.rail_mismatch" if others else "init.device_invisible",
        f"{who(failed)} cannot open adapter {devices}.{rest}",
        "give the process the device (device cgroup, /dev/infiniband), use the same adapters on all nodes, and do not"
        " set NCCL_IGNORE_NET_MISMATCH",
        0.85,
        adapters=devices,
    )


def gdr(evidence: EvidenceSet) -> Iterator[Finding]:
    """GPUDirect RDMA on one side only, or on none."""
    edges = [
        edge
        for process in evidence.of(NcclProcess)
        for edge in process.edges
        if edge.network != "Socket" and edge.source >= 0
    ]
    able = {edge.target if edge.receives else edge.source for edge in edges if edge.gdr and edge.receives is not None}
    # A sender without it is no sign: before Ampere NCCL does not read by GPUDirect RDMA.
    unable = {edge.target for edge in edges if edge.receives and not edge.gdr} - able
    if able and unable:
        yield _lacking(sorted(unable), sorted(able), edges)
        return
    off, enabled = events_of(evidence, "gdr_disabled"), events_of(evidence, "gdr_enabled")
    having = hosts_of(enabled)
    lacking = [event for event in off if event.origin.host and event.origin.host not in having]
    if lacking and having:
        yield said(
            lacking,
            "net.gdr_asymmetric",
            f"{who(lacking)} works without GPUDirect RDMA (GDR) where {fold_hosts(having)} has it.",
            _PEERMEM,
            0.8,
        )
    elif (off and not enabled and not able) or (edges and not able and any(edge.receives for edge in edges)):
        yield Finding(
            "net.gdr_disabled",
            "warning",
            f"{who(off) if off else 'The job'} uses the network without GPUDirect RDMA (GDR): data goes through host"
            " memory.",
            _PEERMEM,
            0.6,
            ranks_of(off),
            hosts_of(off),
            evidence=quotes(off) or _edge_quotes(edges),
        )


_PEERMEM = (
    "load nvidia-peermem on that host (modprobe nvidia-peermem) or use a kernel and driver with DMA-BUF; keep GPU and"
    " NIC under one PCIe switch (NCCL_NET_GDR_LEVEL)"
)


def _edge_quotes(edges: Sequence[NcclEdge]) -> tuple[Evidence, ...]:
    return tuple(Evidence("nccl_log", "channel", edge.text) for edge in edges[:4])


def _lacking(unable: Sequence[int], able: Sequence[int], edges: Sequence[NcclEdge]) -> Finding:
    telling = [edge for edge in edges if edge.target in unable or edge.source in unable]
    return Finding(
        "net.gdr_asymmetric",
        "error",
        f"{name_ranks(unable)} receives without GPUDirect RDMA (GDR) while {name_ranks(able)} uses it: that side goes"
        " through host memory and slows all down.",
        _PEERMEM,
        0.85,
        tuple(unable),
        evidence=_edge_quotes(telling),
    )


RULES = (
    Rule(
        ("net.socket_fallback", "net.plugin_failed", "bootstrap.foreign_peer"), ("hang", "straggler"), socket_fallback
    ),
    Rule(("net.rail_mismatch", "init.device_invisible"), ("hang", "mesh"), rails),
    Rule(("net.gdr_asymmetric", "net.gdr_disabled"), ("straggler",), gdr),
)
