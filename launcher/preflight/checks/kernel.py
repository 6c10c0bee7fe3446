"""What the kernel has written since boot: Xids, lost devices, PCIe errors, failing adapters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from launcher.common.finding import Evidence, Finding, unknown
from launcher.common.kernel_lines import KernelEvent, parse_kernel
from launcher.common.xids import meaning
from launcher.preflight.facts import HostFacts

# Kinds of lines that speak against the host itself, whoever ran on it -> code and what to do.
AGAINST_THE_HOST: Mapping[str, tuple[str, str]] = {
    "sxid": ("gpu.nvlink_error", "look at the Fabric Manager's log; reset GPUs and switches"),
    "fallen_off": ("gpu.fallen_off", "power-cycle the host; check PCIe, power and temperature"),
    "nvrm_init_failed": ("gpu.fallen_off", "power-cycle the host; update the driver"),
    "mce_fatal": ("host.pcie_errors", "drain the host: memory or processor is failing"),
    "iommu_fault": ("host.acs_iommu", "boot with iommu=pt, and turn ACS off on the PCIe switches"),
    "mlx5_health": ("net.port_flap", "check cable, transceiver, temperature and firmware of the adapter"),
}
UNCORRECTED = ("fatal", "uncorrected")
OF_PROGRAMS = ("application", "teardown")  # kinds of Xid that a program causes


def events(facts: HostFacts) -> Iterator[Finding]:
    """One finding for each kind of line; faults of programs that ran before say nothing of the host."""
    report = facts.reports["dmesg"]
    if report.error:
        yield unknown(f"the kernel's lines of {facts.host}: {report.error}", hosts=[facts.host])
    groups: defaultdict[tuple[str, str, str], list[KernelEvent]] = defaultdict(list)
    for event in parse_kernel(report.text.splitlines()):
        if judged := _judge(event):
            groups[judged].append(event)
    for (code, what, fix), found in groups.items():
        yield Finding(
            code,
            "error",
            f"The kernel of {facts.host} reports {what} ({len(found)} lines since boot).",
            fix,
            0.8,
            hosts=[facts.host],
            detail={"lines": len(found)},
            evidence=[Evidence("kernel", f"dmesg of {facts.host}", event.text) for event in found[-3:]],
        )


def _judge(event: KernelEvent) -> tuple[str, str, str] | None:
    """Code, what happened in words, and what to do; None for what speaks not against the host."""
    place = event["bus"] or event["port"]
    if event.xid is not None:
        known = meaning(event.xid)
        if known.kind in OF_PROGRAMS or not known.fatal:
            return None
        return known.code, f"Xid {event.xid} on {place}: {known.text}", known.action
    if event.kind == "aer" and any(word in event["severity"].lower() for word in UNCORRECTED):
        return "host.pcie_errors", f"uncorrected PCIe errors at {place}", "reseat the card; check riser and slot"
    if event.kind in AGAINST_THE_HOST:
        code, fix = AGAINST_THE_HOST[event.kind]
        return code, f"{event.kind.replace('_', ' ')} {place}".rstrip(), fix
    return None
