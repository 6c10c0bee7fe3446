"""What each kind of log line means, as data: code, cause and fix. Kinds that need more than their line have rules.

`cause` may use the fields of the signature and `{who}`, the writers in words. Events of one kind and equal `by` fields
become one finding.
"""

from __future__ import annotations

from collections.abc import Mapping

from doctor.rules.device_meanings import DEVICE_MEANINGS
from doctor.rules.meaning import Meaning

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
    "gid_unusable": Meaning(
        "net.gid_wrong",
        "{who} could not use the RoCE address that its GID index stands for ({error}): in this container or host that"
        " index holds none, or the peer does not reach it.",
        "compare show_gids in both containers: in pods the index differs from pod to pod, so leave NCCL_IB_GID_INDEX to"
        " NCCL 2.21 or later; give the pod the network interface of that adapter",
        ("error",),
        confidence=0.75,
    ),
    "queue_failed": Meaning(
        "init.queue_limit",
        "{who} could not create a {what} ({error}): the adapter's or kernel's limit is reached, or too little memory"
        " may be locked.",
        "fewer processes, channels and peers per adapter; check ulimit -l and ibv_devinfo -v (max_qp, max_cq)",
        ("what",),
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
        "Something that is not a rank of this job connected to {who} (bad magic or command, or a second check-in):"
        " another job with the same address and port, a stale process, or a port scanner.",
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
    "message_truncated": Meaning(
        "nccl.version_mismatch",
        "{who} received {got} bytes instead of {wanted} at start-up: the peer speaks another NCCL version, or ranks"
        " initialise communicators in another order.",
        "use one NCCL on all nodes; create groups in the same order on all ranks",
        confidence=0.6,
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
    "exit_barrier": Meaning(
        "hang.teardown",
        "An agent ({who}) waited in vain at the exit barrier: the ranks of its node had ended, those of other nodes had"
        " not, or their agents were gone.",
        "look at the nodes that ended later: their ranks had more to do, or failed; the results of this node stand",
        severity="warning",
        confidence=0.6,
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
        "{who} may lock only {amount} of memory: too little to register buffers with the adapter.",
        "ulimit -l unlimited (LimitMEMLOCK=infinity of the service, --ulimit memlock=-1 of the container)",
        ("amount",),
    ),
    "memlock_limit": Meaning(
        "init.memlock",
        "The shell of {who} may lock only {kilobytes} kB of memory: too little to register buffers with an InfiniBand"
        " or RoCE adapter.",
        "ulimit -l unlimited (LimitMEMLOCK=infinity of the service, --ulimit memlock=-1 of the container)",
        ("kilobytes",),
        "warning",
        0.45,
    ),
    **DEVICE_MEANINGS,
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
    "lock_held": Meaning(
        "hang.absent_rank",
        "{who} waits in vain for the lock file {path}: another process holds it, or ended and left it behind; the"
        " peers wait in their next collective.",
        "find who holds it (lsof, fuser), remove it if nobody does; keep lock files off network file systems",
        ("path",),
        confidence=0.55,
    ),
    # other libraries
    "hccl_differ": Meaning(
        "hang.desync",
        "HCCL says ({error}) that {who} called a collective with other arguments than its peers.",
        "look for a branch, loop length or size that not all ranks share",
        confidence=0.8,
    ),
    "hccl_socket": Meaning(
        "hang.rendezvous",
        "{who} waited in vain for a peer to connect over HCCL ({error}): a rank is late or stuck before its first"
        " collective, or its address is not reached.",
        "look at the ranks without this error; HCCL_CONNECT_TIMEOUT if they are slow; HCCL_IF_IP, HCCL_SOCKET_IFNAME",
        confidence=0.55,
    ),
    "hccl_link": Meaning(
        "bootstrap.unreachable",
        "{who} could not make a link of HCCL ({error}) to rank {rank} at {address}.",
        "look at that rank first: an error of its own, its device's link; hccn_tool -link and -ping between the two",
        ("rank", "address"),
        confidence=0.5,
    ),
    "hccl_cqe": Meaning(
        "net.retry_exceeded",
        "A network port of {who} gave up after all retries ({error} of HCCL).",
        "look at the peer that the line names, cable and switch port: hccn_tool -stat, -link",
        confidence=0.75,
    ),
    "ccl_provider": Meaning(
        "net.plugin_failed",
        "oneCCL of {who} got no network from libfabric ({error}{provider}).",
        "set FI_PROVIDER_PATH to the libfabric that belongs to oneCCL; FI_PROVIDER=tcp tells whether the rest works;"
        " look at the provider's own error, ulimit -l and the device's permissions",
        ("provider",),
        confidence=0.7,
    ),
    "deepep_timeout": Meaning(
        "hang.stalled_collective",
        "DeepEP of {who} waited in vain for tokens ({error}): a peer did not come to this dispatch, or its RDMA writes"
        " do not arrive.",
        "look whether all ranks entered it; NVSHMEM's version and IBGDA, and the fabric (on RoCE: traffic class, PFC)",
        confidence=0.5,
    ),
    # victims
    "ccl_failed": Meaning(
        "cascade.remote_error",
        "oneCCL failed at {who} ({error}): its lines before, or another rank, tell why.",
        "look at the lines of CCL_ERROR before it (CCL_LOG_LEVEL=info), and at the other ranks",
        severity="warning",
        confidence=0.4,
    ),
    "defunct": Meaning(
        "hang.absent_rank",
        "Process {pid} of python has ended and was not waited for (defunct): if it was a rank, the others wait for it.",
        "read its log's last lines and the kernel log; end its launcher to be rid of it",
        ("pid",),
        severity="warning",
        confidence=0.45,
    ),
    "hccl_failed": Meaning(
        "cascade.remote_error",
        "A collective of HCCL failed at {who} ({error}): the lines with an EI code, and the other ranks, tell why.",
        "look for the first error among the ranks, and in the plog folder of CANN",
        severity="warning",
        confidence=0.4,
    ),
    "evicted": Meaning(
        "cascade.terminated",
        "Kubernetes evicted pods of the job ({what}): their node was lost, drained, or short of memory or disk.",
        "kubectl describe pod and node tell the reason; ask for the memory and ephemeral storage that the job uses",
        ("what",),
        confidence=0.6,
    ),
    "node_lost": Meaning(
        "cascade.terminated",
        "The scheduler ended the job because a node failed{node_words}.",
        "look at that node: kernel log, power, network",
        ("node",),
        confidence=0.6,
    ),
}
