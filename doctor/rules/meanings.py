"""What each kind of log line means, as data: code, cause and fix. Kinds that need more than their line have rules.

`cause` may use the fields of the signature and `{who}`, the writers in words. Events of one kind and equal `by` fields
become one finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.common.finding import Severity


@dataclass(frozen=True)
class Meaning:
    code: str
    cause: str
    fix: str
    by: Sequence[str] = ()
    severity: Severity = "error"
    confidence: float = 0.9


_OPEN_PORTS = "let TCP through between the nodes on all ports of this interface, or choose one by NCCL_SOCKET_IFNAME"
_SAME_NETWORK = "give every node the same adapters, plugin and NCCL_NET, NCCL_IB_DISABLE, NCCL_IB_HCA"
_FABRIC_MANAGER = (
    "start nvidia-fabricmanager (and IMEX on NVL72) with the driver's version, reset the GPUs in that order; "
    "NCCL_NVLS_ENABLE=0 works around NVLS only"
)

MEANINGS: Mapping[str, Meaning] = {
    # network
    "ib_fatal_event": Meaning(
        "net.port_flap",
        "The adapter {device} of {who} reported a fatal event ({event}): its connections are gone.",
        "check the adapter, its firmware and the kernel log of that host",
        ("device", "event"),
        confidence=0.7,
    ),
    "ib_queue_fatal": Meaning(
        "net.local_protection",
        "A queue of adapter {device} of {who} broke ({event}): the adapter was not allowed to touch that memory, or was"
        " the wrong adapter for this peer.",
        "check GPUDirect RDMA (NCCL_NET_GDR_LEVEL=LOC tells) and that NCCL_IB_HCA names the adapters between the hosts"
        " only",
        ("device", "event"),
        confidence=0.7,
    ),
    "ofi_resource": Meaning(
        "init.queue_limit",
        "The network plugin of {who} could not create {what} (RC {rc}: {error}): the adapter is out of that resource "
        "or the plugin does not fit the driver.",
        "use fewer channels or peers, end left-over processes, and bring driver, libfabric and plugin to one release",
        ("what", "rc"),
        confidence=0.75,
    ),
    "efa_limit": Meaning(
        "init.queue_limit",
        "{who} could not create a {what} on the EFA adapter: its limit is reached.",
        "end left-over processes, use fewer queue pairs, update the EFA installer",
        ("what",),
        confidence=0.75,
    ),
    "ofi_failed": Meaning(
        "net.plugin_failed",
        "The OFI network plugin of {who} failed: {what}.",
        "check that libfabric sees the adapter in this container (fi_info), and that plugin and libfabric match",
        ("what",),
        confidence=0.7,
    ),
    "plugin_failed": Meaning(
        "net.plugin_failed",
        "{who} could not load the network plugin that was asked for ({name}{what}).",
        "put the plugin's library on LD_LIBRARY_PATH in the container, of a build that fits this NCCL, or unset"
        " NCCL_NET and NCCL_NET_PLUGIN",
    ),
    "ib_link_mix": Meaning(
        "net.rail_mismatch",
        "{who} was to connect its {device} with a peer's {remote}: adapters of different kinds.",
        "choose adapters of one link type on all nodes by NCCL_IB_HCA",
        ("device", "remote"),
    ),
    "ib_device_count": Meaning(
        "net.rail_mismatch",
        "{who} and its peer use different numbers of adapters.",
        "use the same adapters on all nodes (NCCL_IB_HCA, NCCL_NET_MERGE_LEVEL)",
    ),
    "gdr_register_failed": Meaning(
        "net.local_protection",
        "{who} could not register GPU memory with the adapter ({call}: {error}).",
        "load nvidia-peermem or use a kernel with DMA-BUF; NCCL_NET_GDR_LEVEL=LOC works around",
        confidence=0.7,
    ),
    "size_mismatch": Meaning(
        "hang.shape_mismatch",
        "{who} had {local} bytes where peer {peer} had {remote}: ranks call the same collective with other sizes, or"
        " with other NCCL settings.",
        "compare the tensor sizes of the ranks at this call, and NCCL_ALGO, NCCL_PROTO and NCCL versions",
        ("peer",),
        confidence=0.8,
    ),
    "collective_mismatch": Meaning(
        "hang.desync",
        "NCCL saw that ranks call different collectives, around rank {at_rank}.",
        "look for a branch that not all ranks take; TORCH_DISTRIBUTED_DEBUG=DETAIL names both calls",
        ("at_rank",),
    ),
    # bootstrap
    "foreign_peer": Meaning(
        "bootstrap.foreign_peer",
        "Something that is not a rank of this job connected to {who} (unexpected magic or a second check-in): another"
        " job with the same address and port, a stale process, or a port scanner.",
        "end stale processes, give each job its own port, exclude the hosts from port scans",
        confidence=0.8,
    ),
    "rank_count_mismatch": Meaning(
        "bootstrap.foreign_peer",
        "Ranks of different world sizes ({ours} and {theirs}) met at one root: two jobs, or two attempts, share a"
        " port.",
        "end the processes of the older attempt and use a new port",
    ),
    "socket_family": Meaning(
        "nccl.version_mismatch",
        "{who} read an address of family {family}, which is none: what the peers send has another layout, as of another"
        " NCCL version.",
        "use one NCCL on all nodes (python -c 'import torch; print(torch.cuda.nccl.version())')",
        ("family",),
        "warning",
        0.45,
    ),
    "bind_failed": Meaning(
        "bootstrap.wrong_interface",
        "{who} was told an address that none of its interfaces has ({error}).",
        "use host networking in the container, or set NCCL_COMM_ID / MASTER_ADDR to an address of that very host",
    ),
    "port_taken": Meaning(
        "bootstrap.stale_endpoint",
        "The port{port_words} is taken on the host of {who}: a process of an earlier job is still there.",
        "end the earlier processes or choose another port (torchrun --rdzv-endpoint, MASTER_PORT)",
        ("port",),
    ),
    "name_unknown": Meaning(
        "bootstrap.name_mismatch",
        "{who} cannot resolve the name {address}: hosts know each other by other names.",
        "use an address, or add the name to DNS or /etc/hosts of every host and container",
        ("address",),
    ),
    "rendezvous_closed": Meaning(
        "bootstrap.stale_endpoint",
        "{who} came to a rendezvous that is already closed: its id was used by an earlier attempt.",
        "use a new rendezvous id and port for each attempt (torchrun --rdzv-id)",
    ),
    "loopback_master": Meaning(
        "bootstrap.loopback_master",
        "The master address is {address}, which every host takes for itself.",
        "set MASTER_ADDR to an address that all hosts reach",
        ("address",),
        "warning",
        0.45,
    ),
    "fd_limit": Meaning(
        "init.file_descriptors",
        "{who} ran out of file descriptors ({error}).",
        "raise the limit of open files (ulimit -n 1048576) on every host; lower the number of data loader workers",
    ),
    "memlock_small": Meaning(
        "init.memlock",
        "{who} may lock only {bytes} bytes of memory: too little to register buffers with the adapter.",
        "ulimit -l unlimited (LimitMEMLOCK=infinity of the service, --ulimit memlock=-1 of the container)",
        ("bytes",),
    ),
    # device
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
    "driver_down": Meaning(
        "hang.teardown",
        "{who} was ending (the driver was shutting down) while NCCL was still at work in another thread.",
        "wait for all collectives and destroy the process group before the process ends",
        confidence=0.6,
    ),
    "gpu_reset": Meaning(
        "gpu.xid",
        "A GPU of {who} needs a reset after an error.",
        "drain the node and reset the GPU (nvidia-smi -r); its Xid is in the kernel log",
        confidence=0.7,
    ),
    "ray_died": Meaning(
        "cascade.terminated",
        "A worker of {who} ended unexpectedly, says its launcher; why is in that worker's own log.",
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
    # program
    "ddp_count": Meaning(
        "hang.desync",
        "DDP saw different models: rank {a} has {a_count} parameters, rank {b} has {b_count}.",
        "build the same model on all ranks before wrapping it",
        ("a", "b"),
    ),
    "ddp_shape": Meaning(
        "hang.shape_mismatch",
        "DDP saw that parameter {index} of {who} has other sizes ({sizes}) than on rank 0.",
        "build the same model on all ranks before wrapping it",
        ("index",),
    ),
    "replicas_differ": Meaning(
        "numeric.replica_divergence",
        "Replicas that must be equal are not: {what}.",
        "Find what one replica alone does: parameters changed outside the optimizer, buffers without broadcast, an"
        " optimizer step that one skips, module.forward called around the wrapper, or a device that computes wrongly",
        ("what",),
        confidence=0.85,
    ),
    "seeds_differ": Meaning(
        "rng.group_mismatch",
        "Random states that must agree differ: {what}.",
        "seed all ranks of a tensor-parallel group alike (and data-parallel ranks by their own number)",
        ("what",),
        confidence=0.8,
    ),
    "not_shuffled": Meaning(
        "data.order_not_shuffled",
        "The order of the samples is that of the first epoch again: {what}.",
        "call sampler.set_epoch(epoch) at the start of each epoch",
        severity="warning",
        confidence=0.8,
    ),
    "same_samples": Meaning(
        "data.duplicate_shards",
        "Ranks or workers read the same samples: {what}.",
        "shard the data by data-parallel rank and worker (DistributedSampler, split_dataset_by_node, get_worker_info)",
        severity="warning",
        confidence=0.7,
    ),
    "degree_mismatch": Meaning(
        "mesh.degree_mismatch",
        "The degrees of parallelism do not fit: {what}.",
        "choose degrees whose product is the world size and that divide heads, experts and layers",
        ("what",),
    ),
    # victims
    "node_lost": Meaning(
        "cascade.terminated",
        "The scheduler ended the job because a node failed{node_words}.",
        "look at that node: kernel log, power, network",
        ("node",),
        confidence=0.6,
    ),
}
