"""What a host had when it was last found sound, and what of it is gone: faults that all hosts may share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from launcher.common.finding import Finding
from launcher.preflight.checks.links import NO_LINK, direct_links, lanes
from launcher.preflight.facts import HostFacts

Snapshot = dict[str, Any]
MEMORY_LOST = 0.05  # share of the memory: a module is more


def snapshot(facts: HostFacts, now: float) -> Snapshot:
    """What is kept of a host to be compared with. Devices by UUID: their numbers may change at any boot."""
    names = {device.name: device.handle for device in facts.topology.devices}
    return {
        "time": now,
        "devices": {
            device.handle: {"index": device.index, "name": device.name, "model": device.model}
            for device in facts.topology.devices
        },
        "links": [
            [*sorted((names[a], names[b])), kind]
            for (a, b), kind in direct_links(facts.topology).items()
            if kind != NO_LINK
        ],
        "nics": {nic.label: {"up": nic.up, "gbps": nic.gbps} for nic in facts.topology.nics},
        "memory": facts.memory,
    }


def drift(facts: HostFacts, before: Snapshot) -> Iterator[Finding]:
    """What is worse than `before`. Devices that only got other numbers are told as info: we name them by UUID."""
    after = snapshot(facts, 0.0)
    day = time.strftime("%d %b %Y", time.localtime(before["time"]))
    yield from _devices(facts.host, before["devices"], after["devices"], day)
    yield from _links(facts.host, before, after, day)
    yield from _nics(facts.host, before["nics"], after["nics"], day)
    if after["memory"] < before["memory"] * (1 - MEMORY_LOST):
        yield Finding(
            "preflight.memory_lost",
            "error",
            f"{facts.host} has {after['memory'] >> 30} GiB of memory; on {day} it had {before['memory'] >> 30} GiB.",
            "a memory module failed or was taken out: look at the BMC's log and edac-util",
            hosts=[facts.host],
        )


def _devices(host: str, before: Mapping[str, Any], after: Mapping[str, Any], day: str) -> Iterator[Finding]:
    gone = [about["name"] for handle, about in before.items() if handle not in after]
    if gone and len(after) < len(before):
        yield Finding(
            "init.device_invisible",
            "error",
            f"{', '.join(gone)} of {host} is gone: it was there on {day}.",
            "look at dmesg and lspci: a device that fell off the bus needs a power cycle",
            hosts=[host],
            detail={"devices": gone},
        )
    moved = [handle for handle, about in after.items() if before.get(handle, about)["index"] != about["index"]]
    if moved and not gone:
        yield Finding(
            "preflight.renumbered",
            "info",
            f"{host} numbers its devices otherwise than on {day}; dlaunch names them by UUID.",
            "scripts that use indexes must be looked at",
            hosts=[host],
            detail={handle: [before[handle]["index"], after[handle]["index"]] for handle in moved},
        )


def _links(host: str, before: Snapshot, after: Snapshot, day: str) -> Iterator[Finding]:
    """Links between devices that are both still there."""
    have = {(a, b): kind for a, b, kind in after["links"]}
    pairs = {(a, b): kind for a, b, kind in before["links"]}
    lost = [
        pair
        for pair in combinations(sorted(after["devices"]), 2)
        if pair in pairs and lanes(have.get(pair, NO_LINK)) < lanes(pairs[pair])
    ]
    if lost:
        name = {handle: about["name"] for handle, about in after["devices"].items()}
        counts = {handle: sum(handle in pair for pair in lost) for pair in lost for handle in pair}
        worst = max(counts, key=counts.__getitem__)
        shown = ", ".join(
            f"{name[a]}-{name[b]} {have.get((a, b), NO_LINK)} instead of {pairs[a, b]}" for a, b in lost[:4]
        )
        yield Finding(
            "gpu.nvlink_missing",
            "error",
            f"{name[worst]} of {host} lost NVLinks since {day}: {shown}.",
            "reset the GPUs and look at nvidia-smi nvlink -s and the Fabric Manager; reseat or replace",
            hosts=[host],
            detail={"devices": [name[handle] for handle in counts], "since": before["time"]},
        )


def _nics(host: str, before: Mapping[str, Any], after: Mapping[str, Any], day: str) -> Iterator[Finding]:
    for label, then in before.items():
        now = after.get(label)
        if then["up"] and (now is None or now["up"] is False):
            yield Finding(
                "preflight.nic_down",
                "error",
                f"{label} of {host} is {'gone' if now is None else 'down'}; on {day} it was up.",
                "look at the cable, the switch port and dmesg",
                hosts=[host],
                detail={"nic": label},
            )
        elif now and then["gbps"] and now["gbps"] and now["gbps"] < then["gbps"]:
            yield Finding(
                "preflight.nic_slow",
                "error",
                f"{label} of {host} runs at {now['gbps']:g} Gbit/s; on {day} at {then['gbps']:g}.",
                "look at the cable and the transceiver",
                hosts=[host],
                detail={"nic": label},
            )
