"""What nvidia-smi says of GPUs, as a listing and as a table: memory errors, slowdowns, fabric, recovery."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.rules import Rule, healthy
from doctor.rules.node_tools import note, reports
from launcher.common.finding import Finding
from launcher.common.gpu_health import COOL, RESET, gpu_findings
from launcher.common.node_reports.nvidia_smi import CsvTable, SmiReport, number


def gpus(evidence: EvidenceSet) -> Iterator[Finding]:
    for where, report in reports(evidence, "gpus", SmiReport):
        found = [finding for gpu in report.gpus for finding in gpu_findings(where, gpu)]
        yield from found
        if not found:
            yield healthy(f"nvidia-smi of {where}: no memory error, no hardware slowdown")


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
            "gpu.ecc", "error", f"{name} has memory errors: {listed}.", RESET, 0.85, evidence=note(where, listed)
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
            COOL,
            0.85,
            evidence=note(where, mask or reasons[0]),
        )


RULES = (
    Rule(("gpu.clock_throttled", "gpu.ecc", "gpu.fabric_manager", "gpu.xid"), ("straggler",), gpus),
    Rule(("gpu.ecc", "gpu.clock_throttled"), ("straggler",), gpu_tables),
)
