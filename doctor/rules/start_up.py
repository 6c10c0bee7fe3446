"""Devices and shared memory at start-up, and PCIe links as NCCL prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from doctor.evidence import EvidenceSet
from doctor.rules import Rule
from doctor.rules.events import by_fields, events_of, hosts_of, said, who
from doctor.rules.gpu_tools import NO_P2P
from doctor.text import fold_hosts, name_ranks
from launcher.common.finding import Finding

SLOW_PCI = 3.0  # GB/s as NCCL prints it: below PCIe 3.0 ×4, no GPU or NIC of a cluster is attached like that
DEVICES_PER_HOST = 8
_DENIED = ("ermission", "not permitted", "ead-only")


def duplicates(evidence: EvidenceSet) -> Iterator[Finding]:
    """Two ranks on one device: a missing local rank, or two sets of ranks on one host."""
    for (bus,), found in by_fields(events_of(evidence, "duplicate_device"), "bus").items():
        ranks = sorted({int(event[name]) for event in found for name in ("a", "b")})
        strides = {abs(int(event["a"]) - int(event["b"])) for event in found}
        two_sets = all(stride and stride % DEVICES_PER_HOST == 0 for stride in strides)
        hosts = hosts_of(found)
        why = (
            f"ranks {DEVICES_PER_HOST} apart: two sets of ranks were started on one host, or two hosts look like one"
            if two_sets
            else "the processes do not choose their device by local rank"
        )
        fix = (
            "start one set of ranks per host; in containers give each its own NCCL_HOSTID"
            if two_sets
            else (
                "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group, or one visible device"
                " per rank"
            )
        )
        place = f" of {fold_hosts(hosts)}" if hosts else ""
        yield said(
            found,
            "init.duplicate_device",
            f"{name_ranks(ranks)} all use device {bus}{place}: {why}.",
            fix,
            0.95,
            ranks=tuple(ranks),
            hosts=hosts,
            device=bus,
        )


def shared_memory(evidence: EvidenceSet) -> Iterator[Finding]:
    """A segment that cannot be had although /dev/shm is not said to be full."""
    registered = events_of(evidence, "shm_register")
    pinned = [event for event in registered if event["error"] != "out of memory" or event["call"]]
    if pinned:
        yield said(
            pinned,
            "init.host_register",
            f"{who(pinned)} could not register (pin) a shared memory segment with the GPU"
            f" ({pinned[0]['error'] or 'error'}): /dev/shm is not full, but cudaHostRegister fails, as with a limit on"
            " locked memory, a cgroup, or a driver.",
            "ulimit -l unlimited, --ulimit memlock=-1 of the container; remove stale /dev/shm/nccl-*;"
            " NCCL_SHM_DISABLE=1 works around",
            0.85,
        )
        return
    segments = events_of(evidence, "shm_segment")
    foreign = [event for event in segments if "attaching" in event.text or "No such" in event["error"]]
    if foreign:
        yield said(
            foreign,
            "init.p2p_isolated",
            f"{who(foreign)} cannot attach to a shared memory segment that a peer of the same host made: they do not"
            " share /dev/shm, as in containers of their own.",
            "run the ranks of a host in one container, or with --ipc=host; NCCL_SHM_DISABLE=1 works around",
            0.75,
        )
        return
    denied = [event for event in segments if any(word in event["error"] for word in _DENIED)]
    if denied:
        yield said(
            segments,
            "init.host_register",
            f"{who(denied)} may not make a shared memory segment ({denied[0]['error']}): /dev/shm is not full, but its"
            " rights or those of old segments forbid it.",
            "ls -ld /dev/shm must show drwxrwxrwt (chmod 1777 /dev/shm); remove other users' stale /dev/shm/nccl-*",
            0.85,
        )
        return
    explained = events_of(evidence, "shm_no_space", "p2p_unsupported", "ipc_failed")
    if segments and not explained:
        error = segments[0]["error"]
        yield said(
            segments,
            "init.shm_full",
            f"{who(segments)} could not get shared memory in /dev/shm{' (' + error + ')' if error else ''}: most often"
            " it is full.",
            "df /dev/shm; grow it (docker --shm-size=16g, --ipc=host) and remove stale /dev/shm/nccl-*",
            0.85 if "space" in error else 0.6,
        )


def slow_pci(evidence: EvidenceSet) -> Iterator[Finding]:
    slow = [event for event in events_of(evidence, "graph_link") if float(event["bandwidth"]) < SLOW_PCI]
    for (target, bandwidth), found in by_fields(slow, "target", "bandwidth").items():
        yield said(
            found,
            "host.pcie_degraded",
            f"NCCL sees PCI {target} on {who(found)} behind a link of {bandwidth} GB/s: a virtual machine hides the"
            " real topology, or the link is degraded.",
            "in a VM give NCCL the provider's NCCL_TOPO_FILE; on bare metal compare LnkSta with LnkCap (lspci -vvv)",
            0.85,
            target=target,
            gb_s=float(bandwidth),
        )


_ASSERT = "device-side assert triggered"
_FAULTS: Mapping[str, str] = {
    _ASSERT: "an assertion in a kernel failed, most often an index out of range in the program",
    "an illegal memory access was encountered": (
        "a kernel used an address that is not its own (Xid 31 or 13 in the kernel log)"
    ),
    "unspecified launch failure": "a kernel ended abnormally (look for an Xid in the kernel log)",
}


def faults(evidence: EvidenceSet) -> Iterator[Finding]:
    """CUDA errors of the program's kernels: the rank that met one ended, the others are its victims."""
    for (error,), found in by_fields(events_of(evidence, "gpu_fault"), "error").items():
        program = error == _ASSERT  # only a program sets such a trap
        yield said(
            found,
            "hang.absent_rank" if program else "gpu.xid",
            f"{who(found)} met {error}: {_FAULTS.get(error, 'a kernel failed')}.",
            "run that rank with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer; the same error on another GPU means the"
            " program, otherwise look at this host's kernel log (dmesg | grep Xid)",
            0.65 if program else 0.6,
            error=error,
            sub_cause="exception" if program else "",
        )


def peer_links(evidence: EvidenceSet) -> Iterator[Finding]:
    found = events_of(evidence, "p2p_disabled")
    linked = [event for event in found if event["link"].startswith("NVLINK")]
    if linked:
        yield said(
            linked,
            "gpu.nvlink_error",
            f"P2P is off between GPUs {linked[0]['a']} and {linked[0]['b']} of {who(linked)} although NVLink joins"
            " them: a hardware or driver fault.",
            "nvidia-smi nvlink -s and topo -p2p r; reset the GPUs",
            0.8,
        )
    elif found:
        yield said(
            found,
            "host.acs_iommu",
            f"The driver allows no P2P between GPUs of {who(found)}: transfers go through host memory.",
            NO_P2P,
            0.4,
            "info",
        )


RULES = (
    Rule(("init.duplicate_device",), ("hang", "mesh"), duplicates),
    Rule(("init.host_register", "init.shm_full"), ("hang",), shared_memory),
    Rule(("host.pcie_degraded",), ("mesh", "straggler"), slow_pci),
    Rule(("gpu.xid", "hang.absent_rank"), ("hang",), faults),
    Rule(("gpu.nvlink_error", "host.acs_iommu"), ("mesh",), peer_links),
)
