"""What each kind of kernel line means that speaks for itself, as data. `{…}` are fields of the event."""

from __future__ import annotations

from collections.abc import Mapping

from doctor.rules.meaning import Meaning

KERNEL_MEANINGS: Mapping[str, Meaning] = {
    "sxid": Meaning(
        "gpu.nvlink_error",
        "An NVSwitch reported SXid {xid} on {bus}: {what}.",
        "look at the Fabric Manager's log; reset GPUs and switches, replace if it comes back",
        confidence=0.85,
    ),
    "fallen_off": Meaning(
        "gpu.fallen_off",
        "The GPU at {bus} has fallen off the bus.",
        "power-cycle the host; check PCIe, power and temperature",
        confidence=0.85,
    ),
    "amdgpu_error": Meaning(
        "gpu.xid",
        "The amdgpu driver reports {what} on {bus}.",
        "drain the node and reset the GPU; look at rocm-smi --showrasinfo",
        confidence=0.8,
    ),
    "segfault": Meaning(
        "hang.absent_rank",
        "Process {name} (pid {pid}) crashed with a segmentation fault in {library}: its peers wait for it.",
        "get a core dump or faulthandler stack of that process (python -X faulthandler)",
        confidence=0.6,
    ),
    "pcie_link_down": Meaning(
        "gpu.fallen_off",
        "The PCIe link of port {port} went down.",
        "look at what sits below this port, its power and seating",
        confidence=0.6,
    ),
    "mce_fatal": Meaning(
        "host.pcie_errors",
        "The processor reported a fatal machine check.",
        "drain the node; memory or processor is failing",
        confidence=0.6,
    ),
    "iommu_fault": Meaning(
        "host.acs_iommu",
        "The IOMMU refused a transfer of device {bus}.",
        "boot with iommu=pt (or intel_iommu=off) where P2P or GPUDirect RDMA is used, and turn ACS off on the switches",
        confidence=0.8,
    ),
    "peermem": Meaning(
        "net.gdr_disabled",
        "nvidia-peermem reports errors ({what}).",
        "use the nvidia-peermem of the driver's version, or DMA-BUF",
        severity="warning",
        confidence=0.45,
    ),
    "nvswitch": Meaning(
        "gpu.nvlink_error",
        "The NVSwitch driver reports {what}.",
        "look at the Fabric Manager's log; reset GPUs and switches",
        confidence=0.7,
    ),
    "ib_command": Meaning(
        "init.queue_limit",
        "Adapter {device} refused {command} (error {errno}).",
        "the adapter is out of this resource or the driver does not fit: end left-over processes, update the driver "
        "(EFA installer, OFED)",
        confidence=0.85,
    ),
    "ib_resource": Meaning(
        "init.queue_limit",
        "Adapter {device} could not give {resource} (error {errno}).",
        "the adapter is out of this resource or the driver does not fit: end left-over processes, update the driver",
        confidence=0.8,
    ),
    "mlx5_health": Meaning(
        "net.port_flap",
        "The mlx5 adapter {bus} reports {what}.",
        "check cable, transceiver, temperature and firmware of the adapter",
        severity="warning",
        confidence=0.6,
    ),
    "nfs_stall": Meaning(
        "straggler.checkpoint",
        "NFS server {server} does not respond: everything that reads or writes there waits.",
        "look at the server and the network to it",
        severity="warning",
        confidence=0.55,
    ),
    "fs_error": Meaning(
        "host.disk_full",
        "A file system or disk reports errors ({what}).",
        "check the disk; what was written last may be lost",
        severity="warning",
        confidence=0.45,
    ),
    "nvrm_init_failed": Meaning(
        "gpu.fallen_off",
        "The driver could not initialise the GPU at {bus}.",
        "power-cycle the host; update the driver",
        confidence=0.6,
    ),
    "thermal": Meaning(
        "gpu.clock_throttled",
        "The processor throttles for heat ({what}).",
        "check fans and inlet temperature",
        severity="warning",
        confidence=0.45,
    ),
}
