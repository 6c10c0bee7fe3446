"""What log lines about devices and their libraries mean: a part of `MEANINGS`."""

from __future__ import annotations

from collections.abc import Mapping

from doctor.rules.meaning import Meaning

_FABRIC_MANAGER = (
    "start nvidia-fabricmanager (and IMEX on NVL72) with the driver's version, reset the GPUs in that order; "
    "NCCL_NVLS_ENABLE=0 works around NVLS only"
)

DEVICE_MEANINGS: Mapping[str, Meaning] = {
    "shm_no_space": Meaning(
        "init.shm_full",
        "/dev/shm on the host of {who} has no space for NCCL's or the data loaders' segments.",
        "grow /dev/shm (docker --shm-size=16g, --ipc=host, an emptyDir of medium Memory) and remove stale"
        " /dev/shm/nccl-*",
    ),
    "nvls_failed": Meaning(
        "gpu.fabric_manager",
        "{who} could not set up NVLink SHARP (NVLS) multicast memory: the Fabric Manager or IMEX of that host is"
        " missing, was restarted without a GPU reset, or its NVSwitch fabric is not ready.",
        _FABRIC_MANAGER,
    ),
    "fabric_manager": Meaning(
        "gpu.fabric_manager",
        "The Fabric Manager or the NVSwitches of the host of {who} are not in order.",
        _FABRIC_MANAGER,
    ),
    "fabric_not_ready": Meaning(
        "gpu.fabric_manager",
        "CUDA says on {who} that the system is not yet initialised (802): on NVSwitch machines the fabric manager is"
        " not running or does not fit the driver.",
        _FABRIC_MANAGER,
    ),
    "imex": Meaning(
        "gpu.fabric_manager",
        "{who} has no IMEX channel or daemon, which NVLink fabric memory between nodes needs.",
        "start nvidia-imex on all nodes of the domain and pass /dev/nvidia-caps-imex-channels; NCCL_MNNVL_ENABLE=0"
        " works around",
    ),
    "mnnvl_failed": Meaning(
        "gpu.fabric_manager",
        "Multi-node NVLink failed on {who}: {what}.",
        "check IMEX and the fabric state (nvidia-smi -q, Fabric); NCCL_MNNVL_ENABLE=0 works around",
        confidence=0.7,
    ),
    "gpu_ecc": Meaning(
        "gpu.ecc",
        "A GPU of {who} met an uncorrectable memory error.",
        "drain the node, look at nvidia-smi -q (ECC Errors, Remapped Rows), reset the GPU, replace it if this comes"
        " back",
    ),
    "gpu_contained": Meaning(
        "gpu.ecc",
        "A GPU of {who} contained an uncorrectable memory error: the program that used the page was ended.",
        "restart the job; reset the GPU at the next chance",
    ),
    "gpu_nvlink": Meaning(
        "gpu.nvlink_error",
        "A GPU of {who} met an uncorrectable NVLink error.",
        "look at nvidia-smi nvlink -e and the Xids of this host and its peers, reset the GPUs",
    ),
    "gpu_lost": Meaning(
        "gpu.fallen_off",
        "A GPU of {who} is lost: it has fallen off the bus.",
        "power-cycle the host; check the kernel log (Xid 79), PCIe, power and temperature",
    ),
    "ras_count": Meaning(
        "gpu.ecc",
        "GPU {gpu} of {who} counts {count} uncorrectable errors in {block}.",
        "drain the node and reset the GPU; replace it if the count rises again",
        ("gpu", "block"),
        confidence=0.8,
    ),
    "gpu_unread": Meaning(
        "gpu.xid",
        "GPU {gpu} ({bus}) of {who} answers nvidia-smi with ERR!: the driver has lost touch with it.",
        "look at the kernel log for its Xid (79: off the bus, 119: GSP), drain the node and reset the GPU",
        ("gpu", "bus"),
        confidence=0.75,
    ),
    "gpu_inforom": Meaning(
        "gpu.ecc",
        "The infoROM of GPU {bus} of {who} is corrupted: its records of memory errors and bad pages cannot be trusted.",
        "drain the node and run dcgmi diag -r 3; have the board serviced if it stays after a cold boot",
        ("bus",),
        "warning",
        0.45,
    ),
    "driver_down": Meaning(
        "hang.teardown",
        "{who} was ending (the driver was shutting down) while NCCL was still at work in another thread.",
        "wait for all collectives and destroy the process group before the process ends",
        confidence=0.6,
    ),
    "reclaim_failed": Meaning(
        "hang.teardown",
        "{who} could not clean up a communicator while it ended ({what}): what it computed is not touched by that.",
        "destroy the process group before the memory that was registered with it, and on all ranks together",
        severity="warning",
        confidence=0.45,
    ),
    "gpu_reset": Meaning(
        "gpu.xid",
        "A GPU of {who} needs a reset after an error.",
        "drain the node and reset the GPU (nvidia-smi -r); its Xid is in the kernel log",
        confidence=0.7,
    ),
    "ray_died": Meaning(
        "cascade.terminated",
        "A worker of {who} ended unexpectedly ({error}{node_words}), says its launcher; why is in that worker's own"
        " log.",
        "look at the first error of that worker, and at its host's kernel log (killed for memory?)",
        confidence=0.5,
    ),
    "gpu_busy": Meaning(
        "init.device_invisible",
        "{who} found all its devices busy or unavailable: another process holds them in exclusive mode, or one is"
        " sick.",
        "nvidia-smi: end the other process, set the compute mode to Default",
        confidence=0.7,
    ),
    "ipc_failed": Meaning(
        "init.p2p_isolated",
        "{who} could not open memory that another process of the host shares ({call}{error}): the ranks are isolated"
        " from each other (containers with their own IPC, pid or network namespace, or other visible devices).",
        "run the ranks of a host in one container or with --ipc=host --pid=host and all GPUs visible; "
        "NCCL_CUMEM_ENABLE=0 or NCCL_P2P_DISABLE=1 works around",
        confidence=0.8,
    ),
    "p2p_unsupported": Meaning(
        "init.p2p_isolated",
        "CUDA says on {who} that there is no peer access between two devices (217) where NCCL wanted to share memory by"
        " P2P or cuMem.",
        "NCCL_CUMEM_HOST_ENABLE=0 (NCCL 2.24 to 2.27) or NCCL_P2P_DISABLE=1; compare nvidia-smi topo -p2p r",
        confidence=0.85,
    ),
    "p2p_enable_failed": Meaning(
        "host.acs_iommu",
        "{who} could not enable P2P between devices {a} and {b}, though they should reach each other.",
        "turn off the IOMMU or ACS for these ports (iommu=pt, setpci), or NCCL_P2P_DISABLE=1",
        ("a", "b"),
        confidence=0.6,
    ),
    "driver_gone": Meaning(
        "init.device_invisible",
        "No device of {who} can be used: the driver is not loaded or does not answer ({error}).",
        "load or install the driver for this kernel (modprobe nvidia or amdgpu, dmesg), reboot after its update; then"
        " dlaunch preflight",
        ("error",),
    ),
    "device_invisible": Meaning(
        "init.device_invisible",
        "{who} does not see the device that it was to use ({error}).",
        "compare CUDA_VISIBLE_DEVICES, --gpus of the container, and LOCAL_RANK with the devices of the host"
        " (nvidia-smi -L)",
        ("error",),
    ),
    "nccl_symbol": Meaning(
        "nccl.version_mismatch",
        "{who} loaded an NCCL library that torch was not built for ({error}).",
        "remove the other NCCL from LD_LIBRARY_PATH and LD_PRELOAD, or install the one that torch names in pip show",
        ("error",),
    ),
    "torch_version_mismatch": Meaning(
        "torch.version_mismatch",
        "Ranks use different versions of torch: {what}.",
        "one image or environment for all nodes",
    ),
    "env_mismatch_hint": Meaning(
        "env.mismatch",
        "{who} says that NCCL's algorithm or protocol is set differently between ranks.",
        "set NCCL_ALGO and NCCL_PROTO alike on all ranks, or on none",
        confidence=0.8,
    ),
    "rocm_fine_grain": Meaning(
        "benign.warning_only",
        "{who} runs without HSA_FORCE_FINE_GRAIN_PCIE, which RCCL wants for P2P over PCIe.",
        "export HSA_FORCE_FINE_GRAIN_PCIE=1",
        severity="info",
    ),
    "driver_mismatch": Meaning(
        "torch.version_mismatch",
        "The NVIDIA driver and its library differ on the host of {who}: the driver was updated without a reload.",
        "reload the driver modules or reboot the host",
    ),
    "driver_old": Meaning(
        "torch.version_mismatch",
        "The CUDA build does not fit the driver or device of {who} ({error}{version}).",
        "use a torch build for this driver and device, or update the driver",
        ("error",),
    ),
    "build_lacks": Meaning(
        "torch.version_mismatch",
        "The torch of {who} was built without {what}, which the program asks for.",
        "install a build of torch for this machine (a CUDA or ROCm wheel), or choose what it has: another backend,"
        " USE_LIBUV=0",
        ("what",),
    ),
    "gpu_oom": Meaning(
        "gpu.oom",
        "{who} ran out of GPU memory{size_words}.",
        "smaller batch, activation checkpointing, sharding, or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    "disk_full": Meaning(
        "host.disk_full",
        "{who} could not write{path_words}: the disk is full or the quota is used up.",
        "free space or raise the quota; a checkpoint that was being written is likely cut off",
        ("path",),
    ),
    "oom_slurm": Meaning(
        "host.oom_killed",
        "Host memory ran out at {who}: the kernel killed a process there.",
        "ask for more memory, use fewer data loader workers, load checkpoints with mmap or by one rank a host",
    ),
    "iommu_hint": Meaning(
        "host.acs_iommu",
        "The kernel of {who} runs without iommu=pt: transfers between devices may hang or fail.",
        "add iommu=pt to the kernel's command line",
        severity="warning",
        confidence=0.6,
    ),
    "numa_balancing": Meaning(
        "host.numa_balancing",
        "Automatic NUMA balancing is on at {who}: steps vary and pinned memory moves.",
        "sysctl kernel.numa_balancing=0",
        severity="warning",
    ),
}
