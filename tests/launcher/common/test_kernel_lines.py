"""Kernel lines of many drivers and versions: what kind each is, and the device or process that it names."""

from __future__ import annotations

import pytest

from launcher.common.kernel_lines import parse_kernel

LINES = [
    ("NVRM: Xid (PCI:0018:01:00): 145, pid=<n/a>, NETIR Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)", "xid", "<n/a>"),
    ("NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x26:0x56:1463)", "nvrm_init_failed", "0000:1b:00.0"),
    (
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=12",
        "amdgpu_error",
        "ring gfx timeout",
    ),
    ("NMI watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [kworker/3:1:567]", "soft_lockup", "kworker/3:1"),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 12", "soft_lockup", ""),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", "soft_lockup", ""),
    ("traps: python[12] general protection fault ip:7f sp:7f error:0 in libx.so.6[7f+1]", "segfault", "libx.so.6"),
    ("traps: python[12] trap invalid opcode ip:7f12 sp:7ffd error:0 in libx.so[7f+1000]", "segfault", "libx.so"),
    ("pcieport 0000:16:02.0: pciehp: Slot(5): Link Down", "pcie_link_down", "0000:16:02.0"),
    ("pcieport 0000:17:02.0: DPC: containment event, status:0x1f05 source:0x0000", "pcie_link_down", "0000:17:02.0"),
    ("mlx5_core 0000:5e:00.0 mlx5_3: Port: 1 Link DOWN", "mlx5_health", "0000:5e:00.0"),
    ("Kernel panic - not syncing: Fatal machine check", "mce_fatal", ""),
    ("Kernel panic - not syncing: Fatal local machine check", "mce_fatal", ""),
    ("mce: [Hardware Error]: Machine check: Processor context corrupt", "mce_fatal", ""),
    (
        "nvidia 0000:17:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible",
        "aer",
        "Inaccessible",
    ),
    ("DMAR: [DMA Read NO_PASID] Request device [1b:00.0] fault addr 0x12340000", "iommu_fault", "1b:00.0"),
    ("AMD-Vi: Event logged [IO_PAGE_FAULT device=1b:00.0 domain=0x0012]", "iommu_fault", "1b:00.0"),
    ("mlx5_core 0000:5e:00.0: temp_warn:123:(pid 1): High temperature on sensors", "mlx5_health", "0000:5e:00.0"),
    (
        "mlx5_core 0000:5e:00.0: Detected insufficient power on the PCIe slot (27W).",
        "mlx5_health",
        "insufficient power",
    ),
    ("nvme nvme0: I/O 12 QID 3 timeout, aborting", "fs_error", "nvme nvme0: I/O 12 QID 3 timeout, aborting"),
]


@pytest.mark.parametrize(("line", "kind", "told"), LINES, ids=[kind for _, kind, _ in LINES])
def test_what_a_line_tells(line: str, kind: str, told: str) -> None:
    (event,) = parse_kernel([f"[Mon May  1 10:00:00 2034] {line}"])
    assert event.kind == kind
    assert not told or told in event.fields.values()


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:5e:00.0 enp94s0f0: Link up",
        "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable plugged",
        "DMAR: Intel(R) Virtualization Technology for Directed I/O",
        "rcu: Hierarchical SRCU implementation.",
        "amdgpu 0000:83:00.0: amdgpu: 1 correctable hardware errors detected in umc block, no user action is needed.",
    ],
)
def test_lines_that_tell_nothing(line: str) -> None:
    assert list(parse_kernel([line])) == []


@pytest.mark.parametrize("mark", ["", "AER: "])
def test_the_bit_of_a_pcie_error_stands_below_it(mark: str) -> None:
    lines = [
        f"[ 5.1] pcieport 0000:16:00.0: {mark}PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)",
        f"[ 5.1] pcieport 0000:16:00.0: {mark}  device [8086:347a] error status/mask=00000001/00002000",
        f"[ 5.1] pcieport 0000:16:00.0: {mark}   [ 0] RxErr                  (First)",
    ]
    (event,) = parse_kernel(lines)
    assert (event["severity"], event["bit"], event["name"]) == ("Correctable", "0", "RxErr")
