"""Devices and hosts from kernel logs and node tools: Xids, ECC, NVLink, fabric, PCIe, memory, ports, clocks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.job import JobFacts
from doctor.evidence.logs import KernelRecord
from doctor.evidence.processes import ProcessState
from doctor.rules import Rule
from launcher.common.finding import Evidence, Finding
from launcher.common.xids import CODES, meaning

CLOCK_S = 60.0  # by which the kernel's clock and the job's may differ
_OF_A_PROCESS = ("segfault", "oom_killed", "oom_detail", "hung_task", "soft_lockup")
_CAUSED = re.compile(r"caused by previous Xid (\d+)")


def quotes(records: Sequence[KernelRecord]) -> tuple[Evidence, ...]:
    return tuple(Evidence("kernel", record.where, record.event.text) for record in records[:6])


def hosts(records: Sequence[KernelRecord]) -> tuple[str, ...]:
    return tuple(sorted({record.host for record in records if record.host}))


def kernel_records(evidence: EvidenceSet) -> Sequence[KernelRecord]:
    """Those that may concern the job: the kernel's log keeps what befell other processes, before it and beside it."""
    seen = evidence.of(ProcessState)
    all_live = bool(seen) and not any(state.dead for state in seen)
    starts = [job.started for job in evidence.of(JobFacts) if job.started is not None]
    began = min(starts, default=0.0) - CLOCK_S

    def is_foreign(record: KernelRecord) -> bool:
        crashed_beside = record.event.kind == "segfault" and all_live
        return _of_a_process(record) and (crashed_beside or (record.time is not None and record.time < began))

    return [record for record in evidence.of(KernelRecord) if not is_foreign(record)]


def _of_a_process(record: KernelRecord) -> bool:
    """Whether it tells of one process, not of a device or a host, which stay as they are until somebody mends them."""
    xid = record.event.xid
    return record.event.kind in _OF_A_PROCESS or (xid is not None and meaning(xid).kind == "application")


def xids(evidence: EvidenceSet) -> Iterator[Finding]:
    """One finding per Xid number, with its devices and sub-codes. Xid 45 alone is a job being torn down; where it
    names another Xid as its cause, it is told as that one."""
    by_number: defaultdict[int, list[KernelRecord]] = defaultdict(list)
    for record in evidence.once(kernel_records):
        if record.event.xid is not None:
            cause = _CAUSED.search(record.event.text)
            by_number[int(cause[1]) if cause else record.event.xid].append(record)
    for number, found in sorted(by_number.items()):
        known = meaning(number)
        devices = sorted({record.event["bus"] for record in found})
        gpus = sorted({match[0] for one in found if (match := re.search(r"\bGPU ?\d+\b", one.event["what"]))})
        codes = sorted({record.event.sub_code for record in found if record.event.sub_code is not None})
        fatal = [one for one in found if " Fatal " in one.event.text]
        subs = ", sub-code " + ", ".join(f"{number}.{code}" for code in codes) if codes else ""
        gravity = " (fatal)" if fatal else ""
        named = f" ({', '.join(gpus)})" if gpus else ""
        severe = known.fatal or bool(fatal) or any(_CAUSED.search(one.event.text) for one in found)
        yield Finding(
            known.code,
            "error" if severe else "info",
            f"Xid {number}{subs}{gravity} on {', '.join(devices)}{named}: {known.text}.",
            known.action,
            0.9 if known.kind != "application" else 0.65,
            hosts=hosts(found),
            detail={"xid": number, "sub_codes": codes, "devices": devices, "lines": len(found)},
            evidence=quotes(found),
        )


# Kernel events that mean one thing: kind → (code, severity, confidence, cause, fix). `{…}` are fields of the event.
_KERNEL: Mapping[str, tuple[str, str, float, str, str]] = {
    "sxid": (
        "gpu.nvlink_error",
        "error",
        0.85,
        "An NVSwitch reported SXid {xid} on {bus}: {what}.",
        "look at the Fabric Manager's log; reset GPUs and switches, replace if it comes back",
    ),
    "fallen_off": (
        "gpu.fallen_off",
        "error",
        0.85,
        "The GPU at {bus} has fallen off the bus.",
        "power-cycle the host; check PCIe, power and temperature",
    ),
    "amdgpu_error": (
        "gpu.xid",
        "error",
        0.8,
        "The amdgpu driver reports {what} on {bus}.",
        "drain the node and reset the GPU; look at rocm-smi --showrasinfo",
    ),
    "segfault": (
        "hang.absent_rank",
        "error",
        0.6,
        "Process {name} (pid {pid}) crashed with a segmentation fault in {library}: its peers wait for it.",
        "get a core dump or faulthandler stack of that process (python -X faulthandler)",
    ),
    "pcie_link_down": (
        "gpu.fallen_off",
        "error",
        0.6,
        "The PCIe link of port {port} went down.",
        "look at what sits below this port, its power and seating",
    ),
    "mce_fatal": (
        "host.pcie_errors",
        "error",
        0.6,
        "The processor reported a fatal machine check.",
        "drain the node; memory or processor is failing",
    ),
    "iommu_fault": (
        "host.acs_iommu",
        "error",
        0.8,
        "The IOMMU refused a transfer of device {bus}.",
        "boot with iommu=pt (or intel_iommu=off) where P2P or GPUDirect RDMA is used, and turn ACS off on the switches",
    ),
    "peermem": (
        "net.gdr_disabled",
        "warning",
        0.45,
        "nvidia-peermem reports errors ({what}).",
        "use the nvidia-peermem of the driver's version, or DMA-BUF",
    ),
    "nvswitch": (
        "gpu.nvlink_error",
        "error",
        0.7,
        "The NVSwitch driver reports {what}.",
        "look at the Fabric Manager's log; reset GPUs and switches",
    ),
    "ib_command": (
        "init.queue_limit",
        "error",
        0.85,
        "Adapter {device} refused {command_words} (error {errno}).",
        (
            "the adapter is out of this resource or the driver does not fit: end left-over processes, update the driver"
            " (EFA installer, OFED)"
        ),
    ),
    "ib_resource": (
        "init.queue_limit",
        "error",
        0.8,
        "Adapter {device} could not give a {resource} (error {errno}).",
        "the adapter is out of this resource or the driver does not fit: end left-over processes, update the driver",
    ),
    "mlx5_health": (
        "net.port_flap",
        "warning",
        0.6,
        "The mlx5 adapter {bus} reports {what}.",
        "check cable, transceiver, temperature and firmware of the adapter",
    ),
    "nfs_stall": (
        "straggler.checkpoint",
        "warning",
        0.55,
        "NFS server {server} does not respond: everything that reads or writes there waits.",
        "look at the server and the network to it",
    ),
    "fs_error": (
        "host.disk_full",
        "warning",
        0.45,
        "A file system or disk reports errors ({what}).",
        "check the disk; what was written last may be lost",
    ),
    "nvrm_init_failed": (
        "gpu.fallen_off",
        "error",
        0.6,
        "The driver could not initialise the GPU at {bus}.",
        "power-cycle the host; update the driver",
    ),
    "thermal": (
        "gpu.clock_throttled",
        "warning",
        0.45,
        "The processor throttles for heat ({what}).",
        "check fans and inlet temperature",
    ),
}
_RESOURCES = {
    "pd": "protection domain (PD)",
    "cq": "completion queue (CQ)",
    "qp": "queue pair (QP)",
    "ah": "address handle",
}


def kernel(evidence: EvidenceSet) -> Iterator[Finding]:
    groups: defaultdict[tuple[str, str], list[KernelRecord]] = defaultdict(list)
    for record in evidence.once(kernel_records):
        if record.event.kind in _KERNEL and not _told_as_xid(record, evidence):
            groups[record.event.kind, record.event["bus"] or record.event["device"]].append(record)
    for (kind, _), found in groups.items():
        code, severity, sure, cause, fix = _KERNEL[kind]
        fields = defaultdict(lambda: "?", found[0].event.fields)
        fields["resource"] = _RESOURCES.get(fields["what"].lower(), fields["what"])
        part = fields["command"].partition("_")[2].lower() if kind == "ib_command" else ""
        fields["command_words"] = (
            f"{fields['command']}, a {_RESOURCES[part]}" if part in _RESOURCES else fields["command"]
        )
        yield Finding(
            code,
            "error" if severity == "error" else "warning",
            cause.format_map(fields),
            fix,
            sure,
            hosts=hosts(found),
            detail={"lines": len(found), "kind": kind},
            evidence=quotes(found),
        )


def _told_as_xid(record: KernelRecord, evidence: EvidenceSet) -> bool:
    """The driver tells a lost GPU as Xid 79 too, where it still can."""
    return record.event.kind == "fallen_off" and any(one.event.xid == 79 for one in evidence.of(KernelRecord))


def memory(evidence: EvidenceSet) -> Iterator[Finding]:
    """Processes that the kernel killed, memory errors of the host, tasks that hang in the kernel."""
    records = evidence.once(kernel_records)
    killed = [
        one
        for one in records
        if one.event.kind == "oom_killed" or (one.event.kind == "oom_detail" and one.event["pid"])
    ]
    if killed:
        names = sorted({f"{one.event['name']} (pid {one.event['pid']})" for one in killed})
        yield Finding(
            "host.oom_killed",
            "error",
            f"The kernel killed {', '.join(names[:6])} for want of memory.",
            "ask for more host memory or raise the cgroup's limit; fewer data loader workers; load checkpoints with"
            " mmap",
            0.9,
            hosts=hosts(killed),
            detail={"processes": names},
            evidence=quotes(killed),
        )
    fatal = [one for one in records if one.event.kind == "edac" and one.event["class"] == "UE"]
    if fatal:
        yield Finding(
            "host.pcie_errors",
            "warning",
            f"Uncorrectable errors of host memory at {', '.join(sorted({one.event['dimm'] for one in fatal}))}.",
            "drain the node and replace the memory module",
            0.8,
            hosts=hosts(fatal),
            detail={"kind": "edac"},
            evidence=quotes(fatal),
        )
    hung = [one for one in records if one.event.kind in ("hung_task", "soft_lockup")]
    if hung:
        tasks = ", ".join(sorted({f"{one.event['name']} (pid {one.event['pid']})" for one in hung})[:6])
        yield Finding(
            "hang.absent_rank",
            "warning",
            f"Tasks hang in the kernel: {tasks}.",
            "cat /proc/PID/stack of such a task tells where: file system, driver or memory",
            0.45,
            hosts=hosts(hung),
            detail={"sub_cause": "stopped"},
            evidence=quotes(hung),
        )


def pcie(evidence: EvidenceSet) -> Iterator[Finding]:
    groups: defaultdict[str, list[KernelRecord]] = defaultdict(list)
    for record in evidence.of(KernelRecord):
        if record.event.kind == "aer":
            groups[record.event["port"]].append(record)
    for port, found in groups.items():
        fatal = [one for one in found if one.event["severity"].startswith(("Uncorrected", "Uncorrectable"))]
        what = sorted({one.event["name"] or one.event["type"] for one in fatal or found})
        yield Finding(
            "host.pcie_errors",
            "error" if fatal else "warning",
            f"PCIe port {port} reports {'uncorrected' if fatal else 'corrected'} errors ({', '.join(what)}).",
            "reseat or replace what sits below this port; check risers and power",
            0.85 if fatal else 0.5,
            hosts=hosts(found),
            detail={"port": port, "lines": len(found)},
            evidence=quotes(found),
        )


RULES = (
    Rule((*sorted(set(CODES.values())), "gpu.xid"), ("hang",), xids),
    Rule(tuple(sorted({row[0] for row in _KERNEL.values()})), ("hang", "straggler"), kernel),
    Rule(("host.oom_killed", "host.pcie_errors", "hang.absent_rank"), ("hang",), memory),
    Rule(("host.pcie_errors",), ("hang", "straggler"), pcie),
)
