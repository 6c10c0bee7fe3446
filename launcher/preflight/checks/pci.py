"""PCIe paths between devices: access control and address translation send peer-to-peer traffic the long way round."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.common.finding import Evidence, Finding, unknown
from launcher.common.node_reports.pci import parse_acs
from launcher.preflight.facts import HostFacts


def access_control(facts: HostFacts) -> Iterator[Finding]:
    """ACS of the switches' ports. A virtual machine cannot see or change it."""
    if not _matters(facts):
        return
    report = facts.reports.get("lspci")
    controls = parse_acs(report.text) if report else []
    if report is None or "access denied" in report.text:
        why = "there is no lspci" if report is None else "only root may read it"
        yield unknown(f"PCIe access control of {facts.host}: {why}", hosts=[facts.host])
    redirecting = [control for control in controls if control.redirects]
    if redirecting:
        slots = sorted({control.slot for control in redirecting if control.slot})
        yield Finding(
            "host.acs_iommu",
            "warning",
            f"PCIe access control on {len(redirecting)} ports of {facts.host} sends traffic between devices over the "
            "root: peer-to-peer and GPUDirect RDMA are slow, or hang.",
            "turn ACS off after each boot (setpci -s PORT ECAP_ACS+6.w=0000) or in the BIOS",
            hosts=[facts.host],
            detail={"ports": slots},
            evidence=[Evidence("lspci", f"{facts.host} {one.slot}", one.flags) for one in redirecting[:3]],
        )


def translation(facts: HostFacts) -> Iterator[Finding]:
    """The IOMMU between devices."""
    if _matters(facts) and facts.translated:
        yield Finding(
            "host.acs_iommu",
            "warning",
            f"The IOMMU of {facts.host} translates what {len(facts.translated)} devices transfer.",
            "boot with iommu=pt (or intel_iommu=off, amd_iommu=off)",
            hosts=[facts.host],
            detail={"devices": list(facts.translated)},
        )


def _matters(facts: HostFacts) -> bool:
    return not facts.virtual and (len(facts.topology.devices) > 1 or bool(facts.topology.devices and facts.rdma))
