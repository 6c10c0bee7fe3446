"""What nvidia-smi says of GPUs, as a listing and as a table: memory errors, slowdowns, fabric, recovery."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median

from doctor.evidence import EvidenceSet
from doctor.rules import Rule, healthy
from doctor.rules.node_reports import printed, reports
from launcher.common.finding import Finding
from launcher.common.gpu_health import COOL, RESET, gpu_findings
from launcher.common.node_reports.nvidia_smi import CsvTable, SmiReport, number

SPINNING = 95  # per cent: a kernel of NCCL that waits
IN_USE_MIB = 2_000
NO_P2P = "normal for consumer devices; on others check ACS, IOMMU and the driver (nvidia-smi topo -p2p r)"
PCIE_AT_MOST = 120.0  # GB/s in both directions: more is NVLink


def gpus(evidence: EvidenceSet) -> Iterator[Finding]:
    for where, report in reports(evidence, "gpus", SmiReport):
        found = [finding for gpu in report.gpus for finding in gpu_findings(where, gpu)]
        yield from found
        if not found:
            yield healthy(f"nvidia-smi of {where}: no memory error, no hardware slowdown")


# Bits of clocks_event_reasons.active that slow a device down against its will (NVML).
_MASK = re.compile(r"0[xX][0-9a-fA-F]+")
_SLOW_BITS = {
    0x8: "HW Slowdown",
    0x20: "SW Thermal Slowdown",
    0x40: "HW Thermal Slowdown",
    0x80: "HW Power Brake Slowdown",
}
_TELLING = ("ecc.", "retired_pages", "remapped_rows", "clocks_event_reasons", "clocks_throttle_reasons")
_CSV_ERRORS = {
    "ecc.errors.uncorrected.volatile.total": "uncorrected memory errors since the last reset",
    "retired_pages.double_bit.count": "pages retired for double-bit errors",
    "retired_pages.dbe": "pages retired for double-bit errors",
    "remapped_rows.uncorrectable": "rows remapped for uncorrectable errors",
}


def gpu_tables(evidence: EvidenceSet) -> Iterator[Finding]:
    """`nvidia-smi --query-gpu`: the same facts as columns."""
    for where, table in reports(evidence, "gpus", CsvTable):
        found = [finding for row in range(len(table.rows)) for finding in _row(where, table, row)]
        yield from found
        if not found and table.rows and any(column.startswith(_TELLING) for column in table.columns):
            yield healthy(f"nvidia-smi of {where}: no memory error, no hardware slowdown")


def _row(where: str, table: CsvTable, row: int) -> Iterator[Finding]:
    def cell(*names: str) -> str:
        return next((value for name in names if (value := table.value(row, name))), "")

    name = f"GPU {cell('pci.bus_id', 'gpu_bus_id', 'index', 'uuid', 'gpu_uuid') or row}"
    facts = [f"{cell(column)} {what}" for column, what in _CSV_ERRORS.items() if number(cell(column))]
    bad = [column for column in ("remapped_rows.pending", "remapped_rows.failure", "retired_pages.pending")
           if cell(column).lower() in ("yes", "1")]  # fmt: skip
    if facts or bad:
        listed = "; ".join([*facts, *(f"{column} is set" for column in bad)])
        yield printed(where, listed, "gpu.ecc", f"{name} has memory errors: {listed}.", RESET, 0.85)
    mask = cell("clocks_event_reasons.active", "clocks_throttle_reasons.active")
    bits = int(mask, 16) if _MASK.fullmatch(mask) else 0
    reasons = [text for bit, text in _SLOW_BITS.items() if bits & bit]
    for text in _SLOW_BITS.values():
        column = text.lower().replace(" ", "_")
        if cell(f"clocks_event_reasons.{column}", f"clocks_throttle_reasons.{column}") == "Active":
            reasons.append(text)
    yield from _narrow(where, name, cell)
    if reasons:
        yield printed(
            where,
            mask or reasons[0],
            "gpu.clock_throttled",
            f"{name} is slowed down by its hardware: {', '.join(dict.fromkeys(reasons))}.",
            COOL,
            0.85,
        )


def _narrow(where: str, name: str, cell: Callable[..., str]) -> Iterator[Finding]:
    """A PCIe link with fewer lanes than it has; a lower generation alone is how an idle device saves power."""
    width, most = (number(cell(f"pcie.link.width.{which}")) for which in ("current", "max"))
    if width and most and width < most:
        generations = " and ".join(filter(None, (cell("pcie.link.gen.current"), cell("pcie.link.gen.max"))))
        yield printed(
            where,
            f"{name}: width {width:.0f} of {most:.0f}",
            "host.pcie_degraded",
            f"The PCIe link of {name} runs ×{width:.0f} of ×{most:.0f}"
            f"{' (generations now and at most: ' + generations + ')' if generations else ''}.",
            "reseat the card or riser; check the slot's bifurcation in the BIOS",
            0.8,
        )


def matrices(evidence: EvidenceSet) -> Iterator[Finding]:
    """`nvidia-smi topo -m`: a GPU without NVLink among GPUs that have links to all the others."""
    for where, pairs in reports(evidence, "gpu_matrix", dict):
        linked: Counter[str] = Counter(one for (one, _), kind in pairs.items() if kind.startswith("NV"))
        gpus = {one for one, _ in pairs}
        most = max(linked.values(), default=0)
        bare = sorted((gpu for gpu in gpus if not linked[gpu]), key=lambda gpu: int(gpu[3:]))
        if bare and most > 1 and most >= len(gpus) - len(bare) - 1:
            yield printed(
                where,
                "; ".join(f"{a}-{b}: {kind}" for (a, b), kind in pairs.items() if a == bare[0]),
                "gpu.nvlink_missing",
                f"{', '.join(bare)} has no NVLink to any GPU where the others have links to each other.",
                "nvidia-smi nvlink -s; reset the GPUs, check the Fabric Manager, reseat or replace",
                0.8,
                gpus=bare,
            )


def peer_access(evidence: EvidenceSet) -> Iterator[Finding]:
    """`nvidia-smi topo -p2p`: pairs between which the driver allows no P2P."""
    for where, pairs in reports(evidence, "peer_access", dict):
        barred = {pair: kind for pair, kind in pairs.items() if kind != "OK"}
        if not barred:
            yield healthy(f"nvidia-smi of {where}: P2P is allowed between all GPUs")
            continue
        pair, kind = next(iter(barred.items()))
        allowed = len(pairs) - len(barred)
        yield printed(
            where,
            f"{pair[0]} and {pair[1]}: {kind}",
            "host.acs_iommu",
            f"The driver allows P2P between {allowed} of {len(pairs)} pairs of GPUs of {where} ({kind}): "
            "other transfers go through host memory.",
            NO_P2P,
            0.4,
            "info",
        )


def idle(evidence: EvidenceSet) -> Iterator[Finding]:
    """nvidia-smi's table of a hang: who waits in a collective is at 100 %, who does not come to it is idle."""
    for where, use in reports(evidence, "gpu_use", dict):
        busy = [gpu for gpu, (percent, _) in use.items() if percent >= SPINNING]
        idle = sorted(gpu for gpu, (percent, memory) in use.items() if percent <= 1 and memory >= IN_USE_MIB)
        if len(busy) + len(idle) == len(use) and 0 < len(idle) <= len(busy) / 3:
            names = ", ".join(map(str, idle))
            yield printed(
                where,
                f"utilization of GPU {names} 0-1 %, of {len(busy)} others 100 %",
                "hang.absent_rank",
                f"GPU {names} is idle, though its memory is in use, while all others are at 100 %: if the job hangs,"
                " they wait in a collective for the process of that GPU.",
                "look at the stack of that process (py-spy dump) and its last log lines",
                0.45,
                "warning",
                gpus=idle,
            )


def bandwidths(evidence: EvidenceSet) -> Iterator[Finding]:
    """p2pBandwidthLatencyTest: a GPU all of whose pairs are far slower than those of the others."""
    for where, pairs in reports(evidence, "gpu_bandwidths", dict):
        others = {pair: rate for pair, rate in pairs.items() if pair[0] != pair[1]}
        usual = median(others.values()) if others else 0.0
        best = {gpu: max(rate for pair, rate in others.items() if gpu in pair) for gpu, _ in others}
        slow = sorted(gpu for gpu, rate in best.items() if rate < usual / 2)
        if slow and len(slow) <= len(best) / 3:
            links = usual > PCIE_AT_MOST
            yield printed(
                where,
                f"best pair of GPU {slow[0]}: {best[slow[0]]} GB/s, median {usual} GB/s",
                "gpu.nvlink_missing" if links else "host.pcie_degraded",
                f"GPU {', '.join(map(str, slow))} reaches {best[slow[0]]:.0f} GB/s to any other GPU, where"
                f" {usual:.0f} GB/s are usual on this host.",
                "nvidia-smi nvlink -s; reset the GPU" if links else "lspci -vv (LnkSta): reseat the card or riser",
                0.75,
                gpus=slow,
            )


def peer_gains(evidence: EvidenceSet) -> Iterator[Finding]:
    """p2pBandwidthLatencyTest: P2P that is slower than the way through host memory goes through an IOMMU or ACS."""
    for where, pairs in reports(evidence, "gpu_peer_gains", dict):
        lost = {pair: rates for pair, rates in pairs.items() if rates[1] < rates[0] / 2}
        if lost:
            (a, b), (without, with_p2p) = min(lost.items(), key=lambda pair: pair[1][1])
            yield printed(
                where,
                f"GPU {a} to {b}: {with_p2p} GB/s with P2P, {without} GB/s without",
                "host.acs_iommu",
                f"P2P between {len(lost)} of {len(pairs)} pairs of GPUs of {where} is slower than the way through host"
                f" memory (GPU {a} to {b}: {with_p2p} GB/s with it, {without} GB/s without): an IOMMU or ACS on the"
                " PCIe bridges takes it a detour, on which NCCL may also hang.",
                "boot with iommu=pt (or amd_iommu=off, intel_iommu=off), switch ACS off on the bridges;"
                " NCCL_P2P_DISABLE=1 works around",
                0.75,
            )


RULES = (
    Rule(("hang.absent_rank",), ("hang",), idle),
    Rule(("gpu.nvlink_missing", "host.pcie_degraded"), ("straggler",), bandwidths),
    Rule(("gpu.nvlink_missing",), ("mesh", "straggler"), matrices),
    Rule(("host.acs_iommu",), ("mesh", "straggler"), peer_access),
    Rule(("host.acs_iommu",), ("mesh", "straggler"), peer_gains),
    Rule(("gpu.clock_throttled", "gpu.ecc", "gpu.fabric_manager", "gpu.xid"), ("straggler",), gpus),
    Rule(("gpu.ecc", "gpu.clock_throttled", "host.pcie_degraded"), ("straggler",), gpu_tables),
)
