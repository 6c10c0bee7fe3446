"""What nvidia-smi says of GPUs, as a listing and as a table: memory errors, slowdowns, fabric, recovery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

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
        yield Finding(
            "gpu.ecc", "error", f"{name} has memory errors: {listed}.", RESET, 0.85, evidence=note(where, listed)
        )
    mask = cell("clocks_event_reasons.active", "clocks_throttle_reasons.active")
    reasons = [text for bit, text in _SLOW_BITS.items() if mask.startswith("0x") and int(mask, 16) & bit]
    for text in _SLOW_BITS.values():
        column = text.lower().replace(" ", "_")
        if cell(f"clocks_event_reasons.{column}", f"clocks_throttle_reasons.{column}") == "Active":
            reasons.append(text)
    yield from _narrow(where, name, cell)
    if reasons:
        yield Finding(
            "gpu.clock_throttled",
            "error",
            f"{name} is slowed down by its hardware: {', '.join(dict.fromkeys(reasons))}.",
            COOL,
            0.85,
            evidence=note(where, mask or reasons[0]),
        )


def _narrow(where: str, name: str, cell: Callable[..., str]) -> Iterator[Finding]:
    """A PCIe link with fewer lanes than it has; a lower generation alone is how an idle device saves power."""
    width, most = (number(cell(f"pcie.link.width.{which}")) for which in ("current", "max"))
    if width and most and width < most:
        generations = " and ".join(filter(None, (cell("pcie.link.gen.current"), cell("pcie.link.gen.max"))))
        yield Finding(
            "host.pcie_degraded",
            "error",
            f"The PCIe link of {name} runs ×{width:.0f} of ×{most:.0f}"
            f"{' (generations now and at most: ' + generations + ')' if generations else ''}.",
            "reseat the card or riser; check the slot's bifurcation in the BIOS",
            0.8,
            evidence=note(where, f"{name}: width {width:.0f} of {most:.0f}"),
        )


def matrices(evidence: EvidenceSet) -> Iterator[Finding]:
    """`nvidia-smi topo -m`: a GPU without NVLink among GPUs that have links to all the others."""
    for where, pairs in reports(evidence, "gpu_matrix", dict):
        linked: Counter[str] = Counter(one for (one, _), kind in pairs.items() if kind.startswith("NV"))
        gpus = {one for one, _ in pairs}
        most = max(linked.values(), default=0)
        bare = sorted((gpu for gpu in gpus if not linked[gpu]), key=lambda gpu: int(gpu[3:]))
        if bare and most > 1 and most >= len(gpus) - len(bare) - 1:
            yield Finding(
                "gpu.nvlink_missing",
                "error",
                f"{', '.join(bare)} has no NVLink to any GPU where the others have links to each other.",
                "nvidia-smi nvlink -s; reset the GPUs, check the Fabric Manager, reseat or replace",
                0.8,
                detail={"gpus": bare},
                evidence=note(where, "; ".join(f"{a}-{b}: {kind}" for (a, b), kind in pairs.items() if a == bare[0])),
            )


RULES = (
    Rule(("gpu.nvlink_missing",), ("mesh", "straggler"), matrices),
    Rule(("gpu.clock_throttled", "gpu.ecc", "gpu.fabric_manager", "gpu.xid"), ("straggler",), gpus),
    Rule(("gpu.ecc", "gpu.clock_throttled", "host.pcie_degraded"), ("straggler",), gpu_tables),
)
