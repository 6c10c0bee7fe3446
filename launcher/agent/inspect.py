"""Everything about this host that a check before a job may want to know, as raw facts in one document.

Nothing is judged here. What could not be seen is None, or has an `error` that says why.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from launcher.agent.check import describe_host
from launcher.common.kernel_lines import KERNEL_WORDS

REPORT_TIMEOUT_S = 20.0
NAMES_TIMEOUT_S = 10.0
KERNEL_LIMIT = 512_000  # bytes of the newest kernel lines
REPORT_LIMIT = 1_000_000  # bytes of one tool's output
OF_LIBRARIES = ("NCCL_", "TORCH_", "GLOO_", "FI_", "UCX_")
PCI_LINES = re.compile(rb"^\S|ACSCtl:|LnkCap:|LnkSta:|access denied")
LIMITS: Mapping[str, int] = {"memlock": resource.RLIMIT_MEMLOCK, "open_files": resource.RLIMIT_NOFILE}
DISPLAY_CLASSES = ("0x0300", "0x0302", "0x1200")  # VGA and 3D controllers, processing accelerators


def inspect_host(directory: str, names: Sequence[str], probe: str) -> dict[str, Any]:
    """Facts of this host. `names` are resolved here; `probe` is a shell script whose output the caller reads."""
    folder = Path(directory).expanduser()
    return {
        **describe_host(directory, []),
        "probe": run_tool(["sh", "-c", probe]),
        "reports": reports(),
        "memory": psutil.virtual_memory().total,
        "load": os.getloadavg()[0],
        "not_writable": why_not_writable(folder),
        "shm": space(Path("/dev/shm")),
        "limits": {name: resource.getrlimit(number) for name, number in LIMITS.items()},
        "interfaces": interfaces(),
        "resolved": resolve_names(names),
        "ptrace_scope": integer("/proc/sys/kernel/yama/ptrace_scope"),
        "may_trace_others": os.geteuid() == 0,
        "virtual": "hypervisor" in text("/proc/cpuinfo"),
        "translated": translated_devices(),
        "rdma": names_in("/sys/class/infiniband"),
        "verbs": names_in("/dev/infiniband"),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(OF_LIBRARIES)},
    }


def reports() -> dict[str, dict[str, Any]]:
    """Outputs of the tools that are here, reduced to the lines that tell something: tool -> `run_tool`."""
    found = {"dmesg": kernel_lines()}
    if shutil.which("nvidia-smi"):
        found["nvidia-smi"] = run_tool(["nvidia-smi", "-q"])
    if shutil.which("lspci"):
        found["lspci"] = run_tool(["lspci", "-vvv"], PCI_LINES)
    return found


def run_tool(argv: Sequence[str], wanted: re.Pattern[bytes] | None = None) -> dict[str, Any]:
    """`{"text"}`, of the `wanted` lines only, or `{"text", "error"}` with the tool's own words."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=REPORT_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"text": "", "error": str(error)}
    lines = done.stdout.splitlines()
    kept = [line for line in lines if wanted.search(line)] if wanted else lines
    shown = b"\n".join(kept)[-REPORT_LIMIT:].decode(errors="replace")
    if not done.returncode:
        return {"text": shown}
    words = (done.stderr or done.stdout).decode(errors="replace").strip()
    return {"text": shown, "error": words[-300:] or f"{argv[0]} ended with status {done.returncode}"}


def kernel_lines() -> dict[str, Any]:
    """The newest lines of the kernel's log that may matter."""
    answer = run_tool(["dmesg"], KERNEL_WORDS)
    return {**answer, "text": answer["text"][-KERNEL_LIMIT:]}


def why_not_writable(folder: Path) -> str:
    """Why a job could not write below `folder`, or make it; empty when it can. Nothing is left there."""
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    probe = there / f".preflight-{os.getpid()}"
    try:
        probe.write_bytes(b"x" * 4096)
    except OSError as error:
        return f"{there}: {error.strerror}"
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return ""


def space(path: Path) -> dict[str, int] | None:
    """Bytes of the file system at `path`; None where there is none."""
    with suppress(OSError):
        usage = shutil.disk_usage(path)
        return {"total": usage.total, "free": usage.free}
    return None


def interfaces() -> dict[str, dict[str, Any]]:
    """Network interface -> whether it is up, its speed in Gbit/s (None where it does not say) and its MTU."""
    return {
        name: {
            "up": stats.isup,
            "gbps": stats.speed / 1000 if 0 < stats.speed < 65_535 * 1000 else None,
            "mtu": stats.mtu,
        }
        for name, stats in psutil.net_if_stats().items()
    }


def resolve_names(names: Sequence[str]) -> dict[str, list[str] | None]:
    """name -> the addresses that this host has for it, [] for an unknown name; None when time was up."""
    deadline = time.monotonic() + NAMES_TIMEOUT_S
    return {name: addresses_of(name) if time.monotonic() < deadline else None for name in names}


def addresses_of(name: str) -> list[str]:
    with suppress(OSError):
        return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    return []


def translated_devices() -> list[str]:
    """PCI addresses of the accelerators whose memory accesses the IOMMU translates."""
    found = []
    for device in Path("/sys/bus/pci/devices").glob("*"):
        kind = text(device / "iommu_group/type")
        if kind.startswith("DMA") and text(device / "class").startswith(DISPLAY_CLASSES):
            found.append(device.name)
    return sorted(found)


def names_in(folder: str) -> list[str]:
    with suppress(OSError):
        return sorted(entry.name for entry in os.scandir(folder))
    return []


def integer(path: str) -> int | None:
    with suppress(OSError, ValueError):
        return int(Path(path).read_text())
    return None


def text(path: str | Path) -> str:
    with suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""
