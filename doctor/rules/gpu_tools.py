"""What nvidia-smi says of GPUs, as a listing and as a table: memory errors, slowdowns, fabric, recovery."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.rules import Rule, healthy
from doctor.rules.node_tools import note, reports
from launcher.common.finding import Finding
from launcher.common.node_reports.nvidia_smi import CsvTable, GpuReport, SmiReport, number

SLOWDOWNS = ("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown")
SRAM_LIMIT = 4  # aggregate uncorrectable SRAM errors above which NVIDIA replaces the GPU
_RESET = "drain the node, reset the GPU (nvidia-smi -r), run dcgmi diag -r 3"
_COOL = "check fans, inlet temperature, power supplies and power caps of this host"


def gpus(evidence: EvidenceSet) -> Iterator[Finding]:
    for where, report in reports(evidence, "gpus", SmiReport):
        found = [finding for gpu in report.gpus for finding in _gpu(where, gpu)]
        yield from found
        if not found:
            yield healthy(f"nvidia-smi of {where}: no memory error, no hardware slowdown")


def _gpu(where: str, gpu: GpuReport) -> Iterator[Finding]:
    name = f"GPU {gpu.bus}" if gpu.bus else "a GPU"
    slow = [reason for reason, state in gpu.values.items() if state == "Active" and reason.endswith(SLOWDOWNS)]
    if slow:
        reasons = sorted({reason.rsplit("/", 1)[-1] for reason in slow})
        yield Finding(
            "gpu.clock_throttled",
            "error",
            f"{name} is slowed down by its hardware: {', '.join(reasons)}.",
            _COOL,
            0.9,
            detail={"reasons": reasons},
            evidence=note(where, f"{reasons[0]}: Active"),
        )
    yield from _ecc(where, name, gpu)
    if (state := gpu.get("Fabric/State")) and state not in ("Completed", "N/A", "Not Supported"):
        yield Finding(
            "gpu.fabric_manager",
            "error",
            f"The fabric state of {name} is {state}, not Completed.",
            "start nvidia-fabricmanager of the driver's version; look at its log",
            0.85,
            evidence=note(where, f"State: {state}"),
        )
    if (action := gpu.get("GPU Recovery Action")) and action not in ("None", "N/A"):
        yield Finding(
            "gpu.xid",
            "error",
            f"The driver asks for a recovery of {name}: {action}.",
            f"do it: {action}",
            0.8,
            detail={"recovery_action": action},
            evidence=note(where, f"GPU Recovery Action: {action}"),
        )


def _ecc(where: str, name: str, gpu: GpuReport) -> Iterator[Finding]:
    counts = {
        "volatile uncorrectable SRAM errors": gpu.count(
            "Volatile/SRAM Uncorrectable", "Volatile/SRAM Uncorrectable Parity"
        ),
        "volatile uncorrectable DRAM errors": gpu.count("Volatile/DRAM Uncorrectable"),
        "pages retired for double-bit errors": gpu.count("Retired Pages/Double Bit ECC"),
        "rows remapped for uncorrectable errors": gpu.count("Remapped Rows/Uncorrectable Error"),
    }
    bad = {what: count for what, count in counts.items() if count}
    aggregate = gpu.count("Aggregate/SRAM Uncorrectable") or 0
    pending = gpu.get("Remapped Rows/Pending", "Pending Page Blacklist", "Pending Page Denylist") == "Yes"
    failed = gpu.get("Remapping Failure Occurred") == "Yes"
    facts = [f"{count} {what}" for what, count in bad.items()]
    facts += (
        [f"{aggregate} uncorrectable SRAM errors in its life (more than {SRAM_LIMIT}: replace)"]
        if aggregate > SRAM_LIMIT
        else []
    )
    facts += ["a row remap or page retirement is pending"] if pending else []
    facts += ["a row remap failed"] if failed else []
    if facts:
        severe = failed or aggregate > SRAM_LIMIT or any("volatile" in what for what in bad) or pending
        yield Finding(
            "gpu.ecc",
            "error" if severe else "warning",
            f"{name} has memory errors: {'; '.join(facts)}.",
            f"{_RESET}; replace it" if failed or aggregate > SRAM_LIMIT else _RESET,
            0.9,
            detail={"facts": facts},
            evidence=note(where, "; ".join(facts)),
        )


# Bits of clocks_event_reasons.active that slow a device down against its will (NVML).
_SLOW_BITS = {
    0x8: "HW Slowdown",
    0x20: "SW Thermal Slowdown",
    0x40: "HW Thermal Slowdown",
    0x80: "HW Power Brake Slowdown",
}
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
        if not found and table.rows:
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
        yield Finding(
            "gpu.ecc", "error", f"{name} has memory errors: {listed}.", _RESET, 0.85, evidence=note(where, listed)
        )
    mask = cell("clocks_event_reasons.active", "clocks_throttle_reasons.active")
    reasons = [text for bit, text in _SLOW_BITS.items() if mask.startswith("0x") and int(mask, 16) & bit]
    for text in _SLOW_BITS.values():
        column = text.lower().replace(" ", "_")
        if cell(f"clocks_event_reasons.{column}", f"clocks_throttle_reasons.{column}") == "Active":
            reasons.append(text)
    if reasons:
        yield Finding(
            "gpu.clock_throttled",
            "error",
            f"{name} is slowed down by its hardware: {', '.join(dict.fromkeys(reasons))}.",
            _COOL,
            0.85,
            evidence=note(where, mask or reasons[0]),
        )


RULES = (
    Rule(("gpu.clock_throttled", "gpu.ecc", "gpu.fabric_manager", "gpu.xid"), ("straggler",), gpus),
    Rule(("gpu.ecc", "gpu.clock_throttled"), ("straggler",), gpu_tables),
)
