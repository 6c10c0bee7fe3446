"""Devices: seen by the driver, idle, healthy, set as they should be, and as many as their peers have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from launcher.common.finding import Finding, unknown
from launcher.common.gpu_health import gpu_findings
from launcher.common.node_reports.nvidia_smi import GpuReport
from launcher.hosts.names import fold
from launcher.preflight.checks.peers import alike, outliers
from launcher.preflight.facts import HostFacts

HELD_MIB = 1024  # memory in use on an idle device beyond what drivers and display servers take


def vendor_tool(facts: HostFacts) -> Iterator[Finding]:
    """A driver that does not answer has no devices for a job, however many are in the slots."""
    report = facts.reports.get("nvidia-smi")
    if not report or not report.error:
        return
    if facts.topology.devices:
        yield unknown(f"the health of the devices of {facts.host}: nvidia-smi -q fails", hosts=[facts.host])
    else:
        yield Finding(
            "init.device_invisible",
            "error",
            f"nvidia-smi fails on {facts.host}: {report.error.splitlines()[-1]}",
            "look at dmesg for NVRM lines; reload or reinstall the driver",
            hosts=[facts.host],
        )


def gaps(facts: HostFacts) -> Iterator[Finding]:
    """What the tools did not show of the hardware, or contradicted."""
    for gap in facts.topology.gaps:
        yield unknown(f"the hardware of {facts.host}: {gap}", hosts=[facts.host])


def idle(facts: HostFacts) -> Iterator[Finding]:
    """Somebody's processes on the devices."""
    busy = [device.name for device in facts.topology.devices if device.busy]
    if busy:
        yield Finding(
            "preflight.device_busy",
            "warning",
            f"{', '.join(busy)} of {facts.host} run other processes.",
            "nvidia-smi shows whose; dlaunch run leaves busy devices out",
            hosts=[facts.host],
            detail={"devices": busy},
        )


def memory_held(facts: HostFacts) -> Iterator[Finding]:
    """Memory that a dead process left behind: nobody is listed, and still it is gone."""
    busy = {device.bdf for device in facts.topology.devices if device.busy}
    held = [
        gpu
        for gpu in facts.smi.gpus
        if not _is_one_of(gpu, busy) and (gpu.count("FB Memory Usage/Used") or 0) > HELD_MIB
    ]
    if held:
        yield Finding(
            "preflight.device_busy",
            "warning",
            f"No process is listed, but memory is in use on {', '.join(_held(gpu) for gpu in held)} of {facts.host}.",
            "fuser -v /dev/nvidia* finds who holds it, also in other containers; else reset the GPU",
            hosts=[facts.host],
        )


def _held(gpu: GpuReport) -> str:
    return f"{gpu.bus} ({gpu.count('FB Memory Usage/Used')} MiB)"


def _is_one_of(gpu: GpuReport, bdfs: set[str | None]) -> bool:
    return any(bdf and (gpu.bus or "").lower().endswith(bdf.lower()) for bdf in bdfs)


def errors(facts: HostFacts) -> Iterator[Finding]:
    """ECC, pending remaps, fabric, recovery: what the driver itself holds against a device."""
    for gpu in facts.smi.gpus:
        for finding in gpu_findings(f"nvidia-smi -q on {facts.host}", gpu):
            yield replace(finding, hosts=[facts.host], cause=f"{facts.host}: {finding.cause}")


def settings(facts: HostFacts) -> Iterator[Finding]:
    """Compute mode that refuses ranks; persistence, without which the driver unloads between jobs."""
    closed = [gpu.bus or "?" for gpu in facts.smi.gpus if gpu.get("Compute Mode") == "Prohibited"]
    if closed:
        yield Finding(
            "preflight.compute_mode",
            "error",
            f"{', '.join(closed)} of {facts.host} refuse every process (compute mode Prohibited).",
            "nvidia-smi -c DEFAULT",
            hosts=[facts.host],
        )
    if any(gpu.get("Persistence Mode") == "Disabled" for gpu in facts.smi.gpus):
        yield Finding(
            "preflight.persistence_off",
            "info",
            f"Persistence mode is off on {facts.host}: each job waits for the driver to load, and clocks fall back.",
            "start nvidia-persistenced",
            hosts=[facts.host],
        )


def counts(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """A device that all peers have."""
    for group in alike(hosts):
        common, differing = outliers({facts.host: len(facts.topology.devices) for facts in group})
        fewer = [host for host, count in differing.items() if count < common]
        if fewer:
            shown = ", ".join(f"{host} {differing[host]}" for host in fewer)
            yield Finding(
                "init.device_invisible",
                "error",
                f"Hosts show fewer devices than their peers, which have {common}: {shown}.",
                f"look at dmesg and lspci of {fold(fewer)}: a device that fell off the bus needs a power cycle",
                hosts=fewer,
                detail={"usual": common, **{host: differing[host] for host in fewer}},
            )


def clocks(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """Devices of one model that were set to other clocks: the slowest sets the pace of all."""
    for group in alike(hosts):
        limits = {facts.host: tuple(sorted(map(_clock, facts.smi.gpus))) for facts in group if facts.smi.gpus}
        if not limits:
            continue
        common, differing = outliers(limits)
        lower = [host for host, clock in differing.items() if clock and common and min(clock) < min(common)]
        if lower:
            yield Finding(
                "preflight.clocks",
                "warning",
                f"Devices of {fold(lower)} are limited to lower clocks or power than those of their peers.",
                "nvidia-smi -rac -rgc resets clocks, nvidia-smi -pl sets the power limit",
                hosts=lower,
                detail={"usual": list(common), **{host: list(differing[host]) for host in lower}},
            )


def _clock(gpu: GpuReport) -> tuple[int, int]:
    """Application clock in MHz and power limit in W; 0 where the driver does not say."""
    return gpu.count("Applications Clocks/Graphics") or 0, gpu.count("Current Power Limit", "Power Limit") or 0
