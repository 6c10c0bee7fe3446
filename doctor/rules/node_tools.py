"""What node tools say of GPUs, links, ports and counters. A tool that saw nothing wrong counts as healthy."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.rules import Rule, healthy
from doctor.rules.node_reports import lists, printed, reports
from launcher.common.finding import Evidence, Finding, Severity
from launcher.common.node_reports.dcgm import Diagnostic, LinkStates
from launcher.common.node_reports.fabric_manager import FabricLine
from launcher.common.node_reports.infiniband import LOSS_COUNTERS, IbCounter, IbPort
from launcher.common.node_reports.nccl_tests import BandwidthTable
from launcher.common.node_reports.nvidia_smi import NvLinks
from launcher.common.node_reports.pci import AcsControl, PciLink
from launcher.common.node_reports.processes import KernelWait

MANY_LOSSES = 1_000  # events of one counter since boot below which it is noise


def nvlinks(evidence: EvidenceSet) -> Iterator[Finding]:
    for where, found in lists(evidence, "nvlink", NvLinks):
        most = max((len(gpu.speed) for gpu in found), default=0)
        down = [gpu for gpu in found if gpu.inactive or gpu.all_inactive or (gpu.speed and len(gpu.speed) < most)]
        for gpu in down:
            which = (
                "all"
                if gpu.all_inactive or not gpu.speed
                else ", ".join(map(str, gpu.inactive)) or f"{most - len(gpu.speed)}"
            )
            yield printed(
                where,
                f"GPU {gpu.gpu}: links {which} inactive",
                "gpu.nvlink_missing",
                f"GPU {gpu.gpu} has NVLinks that are down: {which}.",
                "reset the GPUs; check the Fabric Manager; reseat or replace the GPU or baseboard",
                0.85,
                gpu=gpu.gpu,
                down=list(gpu.inactive),
            )
        errors = {(gpu.gpu, link, name): count for gpu in found for (link, name), count in gpu.errors.items() if count}
        if errors:
            listed = "; ".join(
                f"GPU {gpu} link {link}: {count} {name}" for (gpu, link, name), count in list(errors.items())[:6]
            )
            grave = any("Replay" in name or "Recovery" in name for _, _, name in errors)
            yield printed(
                where,
                listed,
                "gpu.nvlink_error",
                f"NVLink error counters are not zero: {listed}.",
                "compare with a second reading; rising counters: reset, reseat or replace",
                0.75,
                "error" if grave else "warning",
            )
        if not down and not errors:
            yield healthy(f"NVLink of {where}: all links up")
    for where, states in reports(evidence, "dcgm_links", dict):
        for entity, state in states.items():
            if isinstance(state, LinkStates) and state.down:
                yield printed(
                    where,
                    entity,
                    "gpu.nvlink_missing",
                    f"{state.down} NVLinks of {entity.upper()} are down ({state.up} are up).",
                    "reset the GPUs; check the Fabric Manager; reseat or replace",
                    0.85,
                )


def ports(evidence: EvidenceSet) -> Iterator[Finding]:
    for where, found in lists(evidence, "ib_ports", IbPort):
        bad = [port for port in found if not port.up]
        for port in bad:
            seen = (
                "the cable is up but no subnet manager answers"
                if port.physical.lower() == "linkup"
                else f"its link is {port.physical}"
            )
            yield printed(
                where,
                f"{port.device}: {port.state}, {port.physical}",
                "net.port_flap",
                f"Port {port.port} of {port.device} is {port.state}: {seen}.",
                "check cable and switch port, and the subnet manager (opensm, UFM); leave the adapter out by"
                " NCCL_IB_HCA=^device",
                0.75,
                device=port.device,
            )
        fast = max((port.rate_gbps for port in found if port.up and port.link_layer == "InfiniBand"), default=0.0)
        slow = [port for port in found if port.up and port.link_layer == "InfiniBand" and port.rate_gbps < fast]
        if slow:
            listed = ", ".join(f"{port.device} ({port.rate_gbps:g} Gb/s)" for port in slow)
            yield printed(
                where,
                listed,
                "net.rail_mismatch",
                f"Ports run slower than their siblings ({fast:g} Gb/s): {listed}.",
                "check cable and transceiver; NCCL_IB_HCA chooses equal ones",
                0.6,
                "warning",
            )
        if not bad and not slow:
            yield healthy(f"InfiniBand ports of {where}: all active")


def counters(evidence: EvidenceSet) -> Iterator[Finding]:
    for where, found in lists(evidence, "ib_counters", IbCounter):
        devices = sorted({one.device for one in found})
        losses = [one for one in found if one.name in LOSS_COUNTERS and one.value >= MANY_LOSSES]
        downs = [one for one in found if one.name == "link_downed" and one.value]
        for device in devices:
            mine = [one for one in losses if one.device == device]
            if mine:
                listed = ", ".join(f"{one.name} {one.value:,} ({LOSS_COUNTERS[one.name]})" for one in mine)
                yield printed(
                    where,
                    "; ".join(f"{one.name}:{one.value}" for one in mine),
                    "net.lossy_fabric",
                    f"{device if device != '?' else 'An adapter'} loses or reorders packets: {listed}.",
                    "RoCE: the same PFC and ECN settings on hosts and switches, one traffic class (NCCL_IB_TC);"
                    " InfiniBand: cable and transceiver of the port; read the counters twice to see which rise",
                    0.8,
                    counters={one.name: one.value for one in mine},
                    device=device,
                )
        if downs:
            listed = ", ".join(f"{one.device} ({one.value} times)" for one in downs)
            yield printed(
                where,
                listed,
                "net.port_flap",
                f"Ports went down since boot: {listed}.",
                "check cable and transceiver",
                0.45,
                "warning",
            )
        if not losses and not downs:
            yield healthy(f"InfiniBand counters of {where}: no losses")


def access_control(evidence: EvidenceSet) -> Iterator[Finding]:
    """ACS that redirects. Source validation alone does not reroute traffic, but does not prove P2P either."""
    found = [(where, one) for where, controls in lists(evidence, "acs", AcsControl) for one in controls]
    on = [(where, one) for where, one in found if one.redirects]
    if on:
        slots = sorted({one.slot for _, one in on if one.slot})
        places = f" ({', '.join(slots[:6])})" if slots else ""
        yield Finding(
            "host.acs_iommu",
            "error",
            f"PCIe access control (ACS) redirects traffic between devices up to the root on {len(on)} ports{places}:"
            " P2P and GPUDirect RDMA are slow there, or hang.",
            "turn ACS off on the switch ports after each boot (setpci -s PORT ECAP_ACS+6.w=0000) or in the BIOS",
            0.85,
            detail={"ports": slots, "redirecting": len(on)},
            evidence=tuple(Evidence("node_report", f"{where}:{one.line}", one.flags) for where, one in on[:6]),
        )
    elif found and not any(one.source_validation_only for _, one in found):
        yield healthy("PCIe access control: no port redirects")


def pci_links(evidence: EvidenceSet) -> Iterator[Finding]:
    for where, links in lists(evidence, "pci_links", PciLink):
        narrow = [
            one
            for one in links
            if one.narrow and any(mark in one.name for mark in ("NVIDIA", "Mellanox", "ConnectX", "3D controller"))
        ]
        if narrow:
            listed = "; ".join(f"{one.slot} {one.name} runs ×{one.width} of ×{one.capable_width}" for one in narrow[:6])
            yield printed(
                where,
                listed,
                "host.pcie_degraded",
                f"PCIe links are narrower than their devices: {listed}.",
                "reseat the card or riser; check the slot's bifurcation in the BIOS",
                0.8,
            )


def diagnostics(evidence: EvidenceSet) -> Iterator[Finding]:
    for where, diagnostic in reports(evidence, "dcgm", Diagnostic):
        bad = [one for one in diagnostic.not_pass if one.status.lower() in ("fail", "error")]
        for one in bad:
            text = one.text or one.test
            code, severity = _dcgm_code(f"{one.test} {text}")
            gpu = f" on GPU {one.gpu}" if one.gpu else ""
            yield printed(
                where,
                text,
                code,
                f"DCGM's {one.category} test {one.test} did not pass{gpu}: {text}.",
                "do what the message says; drain the node until dcgmi diag -r 3 passes",
                0.75,
                severity,
            )
        if diagnostic.passed:
            yield healthy(f"dcgmi diag of {where}: all tests passed")


def _dcgm_code(text: str) -> tuple[str, Severity]:
    lower = text.lower()
    for words, code in (
        (("ecc", "memory error", "remap", "retire", "page", "sram"), "gpu.ecc"),
        (("nvlink", "nvswitch"), "gpu.nvlink_error"),
        (("fabric",), "gpu.fabric_manager"),
        (("pcie", "pci express"), "host.pcie_degraded"),
        (("thermal", "temperature", "throttl", "power"), "gpu.clock_throttled"),
    ):
        if any(word in lower for word in words):
            return code, "error"
    return "gpu.xid", "warning"


def fabric_log(evidence: EvidenceSet) -> Iterator[Finding]:
    for where, found in lists(evidence, "fabric_manager", FabricLine):
        errors = [line for line in found if line.level in ("ERROR", "CRITICAL", "FATAL")]
        if errors:
            harmless = all("non-fatal" in line.text for line in errors)
            yield Finding(
                (
                    "gpu.nvlink_error"
                    if any("NVSwitch" in line.text or "NVLink" in line.text for line in errors)
                    else "gpu.fabric_manager"
                ),
                "warning" if harmless else "error",
                f"The Fabric Manager reports {errors[0].text}.",
                "reset GPUs and NVSwitches of the host if it comes back; look the number up in the Fabric Manager"
                " guide",
                0.7,
                evidence=tuple(Evidence("fabric_manager", f"{where}:{line.line}", line.raw) for line in errors[:6]),
            )
        else:
            yield healthy(f"Fabric Manager log of {where}: no error")


def kernel_waits(evidence: EvidenceSet) -> Iterator[Finding]:
    found = [(where, one) for where, waits in lists(evidence, "waits", KernelWait) for one in waits]
    found += list(reports(evidence, "waits", KernelWait))
    stuck = [(where, one) for where, one in found if one.stuck]
    for where, one in stuck:
        pid = f"Process {one.pid}" if one.pid is not None else "The process"
        yield printed(
            where,
            one.function,
            "hang.absent_rank",
            f"{pid} is stuck in the kernel in {one.function}{f' ({one.cause})' if one.cause else ''}: it cannot be"
            " killed, and its peers wait.",
            "look at that file system or driver; the kernel log tells more (hung task)",
            0.6,
            "warning",
            sub_cause="stopped",
            wait=one.function,
            kernel=one.cause,
        )


def bandwidth(evidence: EvidenceSet) -> Iterator[Finding]:
    for where, table in reports(evidence, "bandwidth", BandwidthTable):
        wrong = sum(row.wrong or 0 for row in table.rows)
        if wrong:
            yield printed(
                where,
                f"#wrong {wrong}",
                "numeric.nonfinite",
                f"The bandwidth test of {where} computed {wrong:,} wrong values: links or memory corrupt data.",
                "run it per pair of GPUs to find the bad one; drain that node",
                0.8,
            )


RULES = (
    Rule(("gpu.nvlink_missing", "gpu.nvlink_error"), ("straggler", "mesh"), nvlinks),
    Rule(("net.port_flap", "net.rail_mismatch"), ("straggler", "mesh"), ports),
    Rule(("net.lossy_fabric", "net.port_flap"), ("hang", "straggler"), counters),
    Rule(("host.acs_iommu",), ("hang", "straggler", "mesh"), access_control),
    Rule(("host.pcie_degraded",), ("straggler", "mesh"), pci_links),
    Rule(
        ("gpu.ecc", "gpu.nvlink_error", "gpu.fabric_manager", "host.pcie_degraded", "gpu.clock_throttled", "gpu.xid"),
        (),
        diagnostics,
    ),
    Rule(("gpu.nvlink_error", "gpu.fabric_manager"), (), fabric_log),
    Rule(("hang.absent_rank",), ("hang",), kernel_waits),
    Rule(("numeric.nonfinite",), (), bandwidth),
)
