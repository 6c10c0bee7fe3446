"""Codes of networks, devices, hosts and libraries."""

from __future__ import annotations

from launcher.common.codes.code import Code

CODES = {
    "net.retry_exceeded": Code(
        "The adapter gave up after all retries (IB status 12, vendor error 129); the first such line counts.",
        "Look at cable, port, GID and switch of the two adapters that it names.",
    ),
    "net.local_protection": Code(
        "The adapter was not allowed to touch that memory (IB status 4): GPUDirect registration.",
        "Load nvidia-peermem or use DMA-BUF; NCCL_NET_GDR_LEVEL=LOC tells and works around.",
    ),
    "net.flush_secondary": Code(
        "Work was flushed after a connection had broken (IB status 5): a victim.",
        "Look for the first completion error, on this or another rank.",
    ),
    "net.port_flap": Code(
        "A port went down, changed its GID or its adapter failed.",
        "Check cable, transceiver and switch port, firmware, and the kernel log at that time.",
    ),
    "net.gid_wrong": Code(
        "The GID index names an address that peers do not reach (RoCE).",
        "Unset NCCL_IB_GID_INDEX, or set it to the RoCE v2 entry that show_gids prints, on all hosts.",
    ),
    "net.rail_mismatch": Code(
        "Ranks use different adapters or numbers of them, so rails cross.",
        "The same NCCL_IB_HCA and adapter order on all nodes.",
    ),
    "net.socket_fallback": Code(
        "A rank talks TCP where its peers have RDMA.",
        "Give every node the same adapters, plugin and NCCL_NET, NCCL_IB_DISABLE, NCCL_IB_HCA.",
    ),
    "net.gdr_disabled": Code(
        "GPUDirect RDMA is not used: data goes through host memory.",
        "Load nvidia-peermem or use a kernel with DMA-BUF; put adapter and device under one PCIe switch.",
    ),
    "net.gdr_asymmetric": Code(
        "GPUDirect RDMA is used on some ranks and not on others.",
        "Bring the hosts to one driver, module and topology.",
    ),
    "net.plugin_failed": Code(
        "The network plugin was not loaded or failed.",
        "Put its library on LD_LIBRARY_PATH in the container, of a build that fits NCCL, or unset NCCL_NET_PLUGIN.",
    ),
    "net.lossy_fabric": Code(
        "Counters of lost, reordered or repeated packets rise.",
        "Check PFC, ECN and cables of that rail.",
    ),
    "gpu.ecc": Code(
        "A device met an uncorrectable memory error, or has rows to remap.",
        "Drain the node, reset the device, replace it when this comes back.",
    ),
    "gpu.fallen_off": Code(
        "A device has fallen off the bus (Xid 79).",
        "Power-cycle the host; check PCIe, power and temperature.",
    ),
    "gpu.gsp_timeout": Code(
        "The device's system processor does not answer (Xid 119, 120).",
        "Reset the device or reboot; update the driver.",
    ),
    "gpu.xid": Code(
        "The driver reported another Xid; number and meaning are in `detail`.",
        "Do what NVIDIA's table says for that number: most ask for a reset.",
    ),
    "gpu.nvlink_error": Code(
        "An NVLink or NVSwitch reported errors.",
        "nvidia-smi nvlink -e on this host and its peers; reset the devices.",
    ),
    "gpu.nvlink_missing": Code(
        "A device has fewer NVLinks than its peers or than before.",
        "Reset the devices; reseat or replace the baseboard when it stays.",
    ),
    "gpu.fabric_manager": Code(
        "Fabric Manager or IMEX is missing, of another version, or was restarted without a reset.",
        "Start it with the driver's version and reset the devices; NCCL_NVLS_ENABLE=0 works around NVLS only.",
    ),
    "gpu.clock_throttled": Code(
        "A device runs below its clock: heat, power, or a hardware slowdown.",
        "Check cooling and power of the host; nvidia-smi -q -d PERFORMANCE names the reason.",
    ),
    "gpu.oom": Code(
        "A rank ran out of device memory.",
        "Smaller batch, checkpointing, sharding, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    ),
    "host.oom_killed": Code(
        "The kernel or Slurm killed a process because host memory ran out.",
        "Ask for more memory, fewer data loader workers, load checkpoints with mmap.",
    ),
    "host.disk_full": Code(
        "A file could not be written: disk or quota is full.",
        "Free space; a checkpoint that was being written is likely cut off.",
    ),
    "host.acs_iommu": Code(
        "PCIe access control or the IOMMU sends transfers between devices through the root: P2P fails or crawls.",
        "iommu=pt, ACS off for these ports; NCCL_P2P_DISABLE=1 tells.",
    ),
    "host.pcie_errors": Code(
        "The kernel reports PCIe errors of a device or adapter.",
        "Reseat the card, check riser and power; uncorrected ones: drain the host.",
    ),
    "host.pcie_degraded": Code(
        "A PCIe link is narrower or slower than it could be.",
        "Reseat the card; in a virtual machine ask the provider.",
    ),
    "host.numa_balancing": Code(
        "Automatic NUMA balancing is on: steps vary and pinned memory moves.",
        "sysctl kernel.numa_balancing=0",
    ),
    "nccl.known_bug": Code(
        "Version and symptoms fit a known bug of NCCL; `detail` has both and the reference.",
        "Update NCCL, or set the variable that it names.",
    ),
    "nccl.version_mismatch": Code(
        "Ranks run different versions of NCCL.",
        "One image or environment on all nodes.",
    ),
    "torch.version_mismatch": Code(
        "Ranks run different versions of torch, or a build that does not fit the driver.",
        "One environment on all nodes; a torch build for this driver.",
    ),
    "env.mismatch": Code(
        "A variable that must be equal differs between ranks.",
        "Set it in one place: `env:` of the inventory or `--env`.",
    ),
    "env.debug_leftover": Code(
        "A debugging variable is still set and costs time.",
        "Unset it.",
    ),
    "preflight.device_busy": Code("A device is in use by another process.", "End that process, or leave the host out."),
    "preflight.compute_mode": Code("A device is in exclusive or prohibited mode.", "nvidia-smi -c DEFAULT"),
    "preflight.persistence_off": Code(
        "Persistence mode is off: the first use of a device is slow.", "nvidia-smi -pm 1"
    ),
    "preflight.clocks": Code("Clock or power limits differ from those of equal devices.", "nvidia-smi -rgc, -pl"),
    "preflight.renumbered": Code("Devices have other indexes than at the last good look.", "Use UUIDs; --accept."),
    "preflight.memory_lost": Code("The host has less memory than at the last good look.", "Look for a failed DIMM."),
    "preflight.version_mismatch": Code("Python, driver or CUDA differ between hosts.", "One image on all hosts."),
    "preflight.nic_down": Code("A port is down that is up on the peers.", "Check cable and switch port."),
    "preflight.nic_slow": Code("A port runs at a lower rate than its peers.", "Check cable, transceiver and switch."),
    "preflight.clock_skew": Code("The clock is more than 2 s off.", "Start chrony or ntpd."),
    "preflight.recorder_off": Code(
        "The flight recorder is turned off by a variable: a hang would leave less evidence.",
        "Unset TORCH_FR_BUFFER_SIZE=0 (or its older name).",
    ),
    "preflight.ptrace": Code(
        "Stacks could not be read here.", "sysctl kernel.yama.ptrace_scope=1, or run as the owner."
    ),
    "preflight.no_py_spy": Code("There is no py-spy for this platform.", "pip install py-spy on that host."),
    "preflight.no_torch": Code("The cluster's Python has no torch.", "Set `python:` of the inventory."),
    "preflight.not_writable": Code("The folder for jobs cannot be written.", "Set `directory:`, or its permissions."),
    "preflight.wrong_result": Code(
        "A device computed a wrong product of whole numbers: silent data corruption.",
        "Drain the host and have the device replaced.",
    ),
    "preflight.slow_device": Code("A device is slower than its peers.", "Look at clocks, heat and other processes."),
    "preflight.slow_link": Code("The link between two hosts crawls, twice.", "Check the adapters and switch between."),
    "preflight.collective_failed": Code(
        "A collective failed within a host or between hosts.", "Read the error; then `ddoctor nccl` on its log."
    ),
}
