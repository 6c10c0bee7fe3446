"""Lines about devices and the host: CUDA errors, memory, NVLink, Fabric Manager, shared memory, disks, PCIe."""

from __future__ import annotations

ROWS: list[tuple[str, str, str]] = [
    # Shared memory of the host.
    (
        "shm_no_space",
        "/dev/shm",
        r"(?:[Ff]ailed to extend|[Ee]rror while creating shared memory segment) "
        r"(?P<path>/dev/shm/\S+).*No space left on device",
    ),
    ("shm_no_space", "/dev/shm", r"^\S+\s+(?P<size>\S+)\s+\S+\s+\S+\s+(?:9[5-9]|100)%\s+(?P<path>/dev/shm)\s*$"),  # df
    ("shm_no_space", "failed to extend", r"failed to extend (?P<path>/dev/shm/\S+) to (?P<bytes>\d+) bytes"),
    ("shm_no_space", "posix_fallocate", r"(?:Call to )?posix_fallocate failed ?: ?(?P<error>[A-Z].*)"),
    (
        "shm_no_space",
        "unable to allocate shared memory",
        r"unable to allocate shared memory\(shm\) for file <(?P<path>[^>]*)>",
    ),
    (
        "shm_no_space",
        "torch_",
        r"(?:unable to (?:write to|resize|open) (?:file|shared memory object)?) ?<"
        r"(?P<path>/?torch_[^>]*)>.*No space left",
    ),
    ("shm_no_space", "out of shared memory", r"(?P<error>workers are out of shared memory|insufficient shared memory)"),
    ("shm_no_space", "bus error encountered", r"(?P<error>[Uu]nexpected bus error encountered in worker)"),
    (
        "shm_register",
        "shm",
        r"(?:shm\w*\.cc:\d+ .*|cudaHostRegister.*)Cuda failure (?:\d+ )?'(?P<error>invalid argument|operation not "
        r"(?:permitted|supported)|OS call failed[^']*|out of memory)'",
    ),
    (
        "shm_register",
        "HostRegister",
        r"(?P<call>cu(?:da)?(?:Mem)?HostRegister)\w*.*(?:failed|error)[^A-Za-z]*(?P<error>.*)",
    ),
    (
        "shm_segment",
        "shared memory segment",
        r"[Ee]rror while (?:creating|attaching to) shared memory segment (?P<path>\S+)(?: \(size "
        r"(?P<bytes>\d+)\))?(?:, error: (?P<error>.*))?",
    ),
    ("shm_segment", "shm_open", r"Call to (?:shm_open|ftruncate|mmap) failed ?: ?(?P<error>.*)"),
    # Fabric Manager, NVLink SHARP, multi-node NVLink.
    (
        "nvls_failed",
        "NVLS",
        r"(?:[Ff]ailed to (?:bind|create|allocate|map|import|setup)|Could not bind).*"
        r"(?:NVLS|Multicast|multicast).*?(?:CUDA error (?P<number>\d+))?(?: '(?P<error>[^']*)'|$)",
    ),
    ("nvls_failed", "nvls.cc", r"nvls\.cc:\d+ .*Cuda failure (?:(?P<number>\d+) )?'(?P<error>[^']*)"),
    ("nvls_failed", "ulticast", r"(?P<call>cuMulticast\w+).*(?:failed|error)[^\d]*(?P<number>\d+)?"),
    (
        "fabric_manager",
        "Fabric Manager",
        r"(?P<what>system or configuration error in the Fabric Manager.*|Fabric Manager "
        r"(?:is not|not) running.*|nv-fabricmanager.*(?:failed|inactive|dead).*)",
    ),
    (
        "fabric_not_ready",
        "not yet initialized",
        r"(?:(?P<number>802)\D{0,40})?'?system not yet initialized",
    ),
    ("fabric_not_ready", "802", r"(?:[Ee]rror|failure) (?P<number>802)\b"),
    ("fabric_not_ready", "SystemNotReady", r"cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY"),
    (
        "fabric_not_ready",
        "abric",
        r"(?:GPU [Ff]abric|fabric)\W{0,3}(?:state|status)\W{0,40}"
        r"(?P<error>In Progress|Not Started|not ready|unhealthy)",
    ),
    (
        "imex",
        "IMEX",
        r"(?P<what>IMEX (?:channel|domain|daemon|service).*(?:not|missing|fail|error|unavailable).*|.*"
        r"(?:/dev/nvidia-caps-imex-channels).*(?:not|No such).*)",
    ),
    ("mnnvl_failed", "MNNVL", r"(?P<what>MNNVL.*(?:not|fail|error|mismatch|different).*)"),
    # CUDA errors by what they mean. NCCL: Cuda failure [N] 'text'; torch: CUDA error: text.
    ("gpu_ecc", "ECC error", r"(?P<error>uncorrectable ECC error(?: encountered)?)"),
    (  # rocm-smi --showrasinfo
        "ras_count",
        "ENABLED",
        r"^GPU\[(?P<gpu>\d+)\]\s*:\s+(?P<block>\w+)\s+ENABLED\s+\d+\s+(?P<count>[1-9]\d*)\s*$",
    ),
    (
        "gpu_nvlink",
        "NVLink error",
        r"(?P<error>uncorrectable NVLink error(?: was)? detected(?: during the execution)?)",
    ),
    ("gpu_nvlink", "over nvlink", r"(?P<error>Invalid access of peer GPU memory over nvlink)"),
    ("gpu_nvlink", "ailure 220", r"Cuda failure (?P<number>220)"),
    ("gpu_contained", "ontained", r"(?P<error>(?:[Cc]ontained|an exception was raised that).*memory error)"),
    ("gpu_lost", "is lost", r"(?:GPU (?P<bus>[0-9A-Fa-f:.]+) |the )?(?P<error>GPU is lost|is lost\.? ?Reboot)"),
    ("gpu_unread", "ERR!", r"^\|?\s*(?P<gpu>\d+)\s+[A-Z].*\bERR!.*\b(?P<bus>[0-9A-F]{8}:[0-9A-F:.]+)"),  # nvidia-smi
    ("gpu_inforom", "infoROM is corrupted", r"infoROM is corrupted at gpu (?P<bus>[0-9A-Fa-f:.]+)"),  # below the table
    ("gpu_lost", "allen off the bus", r"(?P<error>fallen off the bus)"),
    (
        "gpu_lost",
        "nable to determine the device handle",
        r"Unable to determine the device handle for (?:gpu|GPU)\s?(?P<bus>[0-9A-Fa-f:.]+)",
    ),
    ("gpu_fault", "illegal memory access", r"(?P<error>an illegal memory access was encountered)"),
    ("gpu_fault", "unspecified launch failure", r"(?P<error>unspecified launch failure)"),
    ("gpu_fault", "misaligned address", r"(?P<error>misaligned address)"),
    ("gpu_fault", "device-side assert", r"(?P<error>device-side assert triggered)"),
    ("gpu_fault", "hardware stack error", r"(?P<error>hardware stack error)"),
    ("gpu_fault", "program counter", r"(?P<error>invalid program counter)"),
    ("gpu_fault", "launch timed out", r"(?P<error>the launch timed out and was terminated)"),
    ("gpu_fault", "illegal instruction was", r"(?P<error>an illegal instruction was encountered)"),
    ("gpu_fault", "HW Exception by GPU", r"(?P<error>HW Exception by GPU node-\d+).*?(?:reason ?:\s?(?P<why>.*))?$"),
    ("gpu_fault", "Memory access fault by GPU", r"(?P<error>Memory access fault by GPU node-\d+)"),
    (
        "p2p_unsupported",
        "eer access",
        r"(?:Cuda failure|CUDA (?:error|failure))[^']*?(?P<number>217)?[ :']*"
        r"(?P<error>peer access is not supported between these two devices)",
    ),
    ("p2p_unsupported", "ailure 217", r"Cuda failure (?P<number>217)"),
    (
        "ipc_failed",
        "Ipc",
        r"(?:Call to )?(?P<call>cu(?:da)?(?:Mem)?Ipc(?:Mem)?(?:Open|Get)\w*|hipIpc\w+).*(?:failed|error)[^\w']*'?"
        r"(?P<error>[^']*)",
    ),
    (
        "ipc_failed",
        "IPC handle",
        r"[Ff]ailed to (?:open|get|import|export)(?: CUDA| HIP)? IPC handle ?:? ?(?P<error>.*)",
    ),
    (
        "ipc_failed",
        "p2p.cc",
        r"p2p\.cc:\d+ .*Cuda failure (?:\d+ )?'(?P<error>invalid argument|invalid resource handle"
        r"|invalid device ordinal"
        r"|operation not supported|"
        r"API call is not supported[^']*|OS call failed[^']*|unknown error)'",
    ),
    ("ipc_failed", "mapping of buffer object failed", r"(?P<error>mapping of buffer object failed)"),
    ("ipc_failed", "pidfd", r"(?P<call>pidfd_(?:open|getfd)).*(?:failed|error)[^\w]*(?P<error>.*)"),
    (
        "ipc_failed",
        "hareableHandle",
        r"(?P<call>cuMem(?:Import|Export)\w*ShareableHandle).*(?:failed|error)[^\w']*'?(?P<error>[^']*)",
    ),
    ("ipc_failed", "UDS", r"UDS: (?P<error>.*(?:failed|refused|No such).*)"),
    (
        "p2p_enable_failed",
        "nable P2P between",
        r"Could not enable P2P between dev (?P<a>\d+)\S* and dev (?P<b>\d+)\S*(?: (?P<error>.*))?",
    ),
    (
        "p2p_disabled",
        "P2P is disabled between",
        r"P2P is disabled between (?P<link>NVLINK connected|connected) GPUs (?P<a>\d+) and (?P<b>\d+)",
    ),
    ("device_invisible", "invalid device ordinal", r"(?P<error>invalid device ordinal)"),
    ("device_invisible", "no CUDA-capable device", r"(?P<error>no CUDA-capable device is detected)"),
    ("device_invisible", "No CUDA GPUs are available", r"(?P<error>No CUDA GPUs are available)"),
    ("device_invisible", "No devices were found", r"(?P<error>No devices were found)"),
    (
        "device_invisible",
        "initialize NVML",
        r"(?P<error>Failed to initialize NVML: (?:Unknown Error|Insufficient Permissions))",
    ),
    (
        "driver_gone",
        "the NVIDIA driver",
        r"NVIDIA-SMI has failed because it (?P<error>couldn't communicate with the NVIDIA driver)",
    ),
    (
        "driver_gone",
        "amdgpu",
        r"(?P<error>(?:[Dd]river not initialized|amdgpu not found in modules|amdgpu driver is not loaded).*)",
    ),
    ("device_invisible", "GPU access blocked", r"(?P<error>GPU access blocked by the operating system)"),
    ("gpu_reset", "requires reset", r"(?P<error>GPU requires reset)"),
    ("gpu_reset", "RESET_REQUIRED", r"(?P<error>NV_ERR_RESET_REQUIRED)"),
    ("device_invisible", "No HIP GPUs", r"(?P<error>No HIP GPUs are available)"),
    (
        "device_invisible",
        "nvmlDeviceGetHandleByPciBusId",
        r"nvmlDeviceGetHandleByPciBusId\(\S*\) failed: (?P<error>Not Found|Insufficient Permissions)",
    ),
    ("driver_mismatch", "ersion mismatch", r"(?P<error>Driver/library version mismatch)"),
    (
        "driver_old",
        "driver version is insufficient",
        r"(?P<error>CUDA driver version is insufficient for CUDA runtime version)",
    ),
    (
        "driver_old",
        "unsupported display driver",
        r"(?P<error>system has unsupported display driver / cuda driver combination)",
    ),
    (
        "driver_old",
        "driver on your system is too old",
        r"NVIDIA driver on your system is too old \(found version (?P<version>\d+)\)",
    ),
    ("driver_old", "no kernel image", r"(?P<error>no kernel image is available for execution on the device)"),
    ("driver_old", "PTX was compiled", r"(?P<error>the provided PTX was compiled with an unsupported toolchain)"),
    (
        "gpu_oom",
        "out of memory",
        r"(?:(?:torch\.(?:cuda\.)?)?OutOfMemoryError|CUDA out of memory|HIP out of memory|Cuda failure "
        r"(?:2 )?'out of memory'|CUDA error: out of memory|Failed to CUDA \w+)(?:.*Tried to allocate "
        r"(?P<size>[\d.]+ \w+))?(?:.*GPU (?P<gpu>\d+))?",
    ),
    (
        "gpu_oom",
        "Failed to CUDA",
        r"Failed to CUDA (?:host )?(?:alloc|malloc|calloc)\w*(?: async)? (?P<size>\d+) bytes",
    ),
    ("driver_down", "driver shutting down", r"(?P<error>driver shutting down)"),
    ("gpu_busy", "busy or unavailable", r"(?P<error>CUDA-capable device\S* (?:is/)?are busy or unavailable)"),
    (
        "duplicate_device",
        "uplicate GPU detected",
        r"Duplicate GPU detected ?: rank (?P<a>\d+) and rank (?P<b>\d+) both on (?:CUDA|HIP|ROCm)? ?device "
        r"(?P<bus>[0-9a-fA-F:.]+)",
    ),
    # Topology as NCCL prints it.
    ("graph_link", "- PCI/", r"\+ PCI\[(?P<bandwidth>\d+(?:\.\d+)?)\] - PCI/(?P<target>\S+)"),
    ("graph_link", "- GPU/", r"\+ PCI\[(?P<bandwidth>\d+(?:\.\d+)?)\] - GPU/(?P<target>\S+)"),
    ("graph_link", "- NIC/", r"\+ PCI\[(?P<bandwidth>\d+(?:\.\d+)?)\] - NIC/(?P<target>\S+)"),
    # Host.
    ("disk_full", "o space left on device", r"(?:\[Errno 28\] )?No space left on device(?:: '?(?P<path>[^']+)'?)?"),
    ("disk_full", "PytorchStreamWriter failed", r"(?P<error>PytorchStreamWriter failed writing file.*)"),
    ("disk_full", "nput/output error", r"OSError: \[Errno 5\] Input/output error(?:: '?(?P<path>[^']+)'?)?"),
    ("disk_full", "quota exceeded", r"(?P<error>[Dd]isk quota exceeded)(?:: '?(?P<path>[^']+)'?)?"),
    ("oom_slurm", "oom", r"Detected (?P<count>\d+) oom[-_]?kill event"),
    ("oom_slurm", "low on resource", r"low on resource: (?P<error>memory)"),
    ("disk_full", "low on resource", r"low on resource: (?P<error>ephemeral-storage)"),
    ("oom_slurm", "OOMKilled", r"(?P<error>OOMKilled)"),
    ("oom_slurm", "oom-kill", r"(?P<error>oom[-_]killer|oom_kill)"),
    ("iommu_hint", "iommu", r"Missing \"?iommu=pt\"? from kernel command line"),
    ("numa_balancing", "NUMA auto balancing", r"NUMA auto balancing enabled"),
    ("numa_balancing", "numa_balancing", r"kernel\.numa_balancing\s*=\s*1\b"),
    ("rocm_fine_grain", "HSA_FORCE_FINE_GRAIN_PCIE", r"Missing \"?HSA_FORCE_FINE_GRAIN_PCIE"),
]
