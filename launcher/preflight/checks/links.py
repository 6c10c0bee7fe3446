"""Links of the devices: NVLink as the peers have it, PCIe as wide as the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from launcher.common.finding import Finding, unknown
from launcher.common.node_reports.nvidia_smi import number
from launcher.preflight.checks.peers import alike, usual
from launcher.preflight.facts import HostFacts
from launcher.topology.links import is_direct
from launcher.topology.model import HostTopology

NO_LINK = "no direct link"


def direct_links(topology: HostTopology) -> dict[tuple[str, str], str]:
    """Pair of devices -> their direct link as printed (`NV18`), or NO_LINK."""
    found = {}
    for a, b in combinations([device.name for device in topology.devices], 2):
        link = topology.link(a, b)
        found[a, b] = link.printed if link and is_direct(link.kind) else NO_LINK
    return found


def missing(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """Direct links that the peers have between the same devices.

    A host whose links are the same in another order only numbers its devices otherwise, and lacks nothing.
    """
    for group in alike(hosts):
        whole = [facts for facts in group if len(facts.topology.devices) > 1]
        if not whole:
            continue
        for facts in whole:
            if facts.topology.opaque:
                yield unknown(f"the links of {facts.host}: a virtual machine hides them", hosts=[facts.host])
        maps = {facts.host: direct_links(facts.topology) for facts in whole}
        expected = usual(tuple(sorted(links.items())) for links in maps.values())
        for host, links in maps.items():
            if len(links) == len(expected) and sorted(links.values()) != sorted(kind for _, kind in expected):
                yield from _lost(host, links, dict(expected))


def _lost(host: str, links: dict[tuple[str, str], str], expected: dict[tuple[str, str], str]) -> Iterator[Finding]:
    lost = [pair for pair, kind in expected.items() if lanes(links.get(pair, NO_LINK)) < lanes(kind)]
    if lost:
        devices = sorted({name for pair in lost for name in pair}, key=lambda one: -sum(one in pair for pair in lost))
        shown = ", ".join(f"{a}-{b} {links.get((a, b), NO_LINK)} instead of {expected[a, b]}" for a, b in lost[:4])
        yield Finding(
            "gpu.nvlink_missing",
            "error",
            f"{devices[0]} of {host} lost NVLinks that its peers have: {shown}.",
            "reset the GPUs and look at nvidia-smi nvlink -s and the Fabric Manager; reseat or replace",
            hosts=[host],
            detail={"pairs": [list(pair) for pair in lost], "devices": devices},
        )


def lanes(printed: str) -> float:
    """How much a printed link is worth beside others of its kind."""
    return 0.0 if printed == NO_LINK else number(printed.lstrip("NVXL")) or 1.0


def pcie_width(facts: HostFacts) -> Iterator[Finding]:
    """Fewer PCIe lanes than the device has. The speed falls when idle, the width does not."""
    narrow = []
    for gpu in facts.smi.gpus:
        now, most = number(gpu.get("Link Width/Current")), number(gpu.get("Link Width/Max"))
        if now and most and now < most:
            narrow.append(f"{gpu.bus} x{now:.0f} of x{most:.0f}")
    if narrow:
        yield Finding(
            "host.pcie_degraded",
            "error",
            f"PCIe links of {facts.host} are narrower than their devices: {', '.join(narrow)}.",
            "reseat the card or riser; check the slot's bifurcation in the BIOS",
            hosts=[facts.host],
        )
