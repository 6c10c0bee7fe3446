"""What `nvidia-smi -q` says against a GPU: memory errors, slowdowns, fabric, recovery. Pure.

Doctor and preflight share it: one looks after a job, the other before.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.common.finding import Evidence, Finding
from launcher.common.node_reports.nvidia_smi import GpuReport

SLOWDOWNS = ("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown")
SRAM_LIMIT = 4  # aggregate uncorrectable SRAM errors above which NVIDIA replaces the GPU
RESET = "drain the node, reset the GPU (nvidia-smi -r), run dcgmi diag -r 3"
COOL = "check fans, inlet temperature, power supplies and power caps of this host"


def gpu_findings(where: str, gpu: GpuReport) -> Iterator[Finding]:
    """Everything that speaks against one GPU; `where` names the place of the report."""
    name = f"GPU {gpu.bus}" if gpu.bus else "a GPU"
    yield from _slowdowns(where, name, gpu)
    yield from _memory(where, name, gpu)
    if (state := gpu.get("Fabric/State")) and state not in ("Completed", "N/A", "Not Supported"):
        yield Finding(
            "gpu.fabric_manager",
            "error",
            f"The fabric state of {name} is {state}, not Completed.",
            "start nvidia-fabricmanager of the driver's version; look at its log",
            0.85,
            evidence=_note(where, f"State: {state}"),
        )
    if (action := gpu.get("GPU Recovery Action")) and action not in ("None", "N/A"):
        yield Finding(
            "gpu.xid",
            "error",
            f"The driver asks for a recovery of {name}: {action}.",
            f"do it: {action}",
            0.8,
            detail={"recovery_action": action},
            evidence=_note(where, f"GPU Recovery Action: {action}"),
        )


def _slowdowns(where: str, name: str, gpu: GpuReport) -> Iterator[Finding]:
    slow = [reason for reason, state in gpu.values.items() if state == "Active" and reason.endswith(SLOWDOWNS)]
    if slow:
        reasons = sorted({reason.rsplit("/", 1)[-1] for reason in slow})
        yield Finding(
            "gpu.clock_throttled",
            "error",
            f"{name} is slowed down by its hardware: {', '.join(reasons)}.",
            COOL,
            0.9,
            detail={"reasons": reasons},
            evidence=_note(where, f"{reasons[0]}: Active"),
        )


def _memory(where: str, name: str, gpu: GpuReport) -> Iterator[Finding]:
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
    worn = aggregate > SRAM_LIMIT
    facts = [
        *(f"{count} {what}" for what, count in bad.items()),
        *([f"{aggregate} uncorrectable SRAM errors in its life (more than {SRAM_LIMIT}: replace)"] if worn else []),
        *(["a row remap or page retirement is pending"] if pending else []),
        *(["a row remap failed"] if failed else []),
    ]
    if facts:
        severe = failed or worn or pending or any("volatile" in what for what in bad)
        yield Finding(
            "gpu.ecc",
            "error" if severe else "warning",
            f"{name} has memory errors: {'; '.join(facts)}.",
            f"{RESET}; replace it" if failed or worn else RESET,
            0.9,
            detail={"facts": facts},
            evidence=_note(where, "; ".join(facts)),
        )


def _note(where: str, text: str) -> tuple[Evidence, ...]:
    return (Evidence("node_report", where, text),)
