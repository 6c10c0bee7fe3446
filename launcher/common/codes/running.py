"""Codes of jobs that run, but slowly, wrongly or at the wrong place."""

from __future__ import annotations

from launcher.common.codes.code import Code

CODES = {
    "slow.exposed_comm": Code(
        "Communication stands bare that computation could hide.",
        "Prefetch FSDP's gathers, larger DDP buckets, asynchronous tensor parallelism.",
    ),
    "slow.comm_bound": Code(
        "There is more communication than computation to hide it.",
        "Move the axis with the most traffic inside a node, send fewer bytes, more tokens per device.",
    ),
    "slow.launch_bound": Code(
        "The device idles between small kernels: the CPU cannot launch them faster.",
        "torch.compile or CUDA graphs, a larger batch per rank.",
    ),
    "slow.input_bound": Code(
        "All ranks wait for their data.",
        "More loader workers, prefetching, faster storage, cheaper transforms.",
    ),
    "slow.offload": Code(
        "Much time goes into copies between host and device.",
        "Keep states on the device or shard them further; pin the memory.",
    ),
    "slow.bubble": Code(
        "Pipeline stages wait for each other longer than they compute.",
        "More micro-batches, or an interleaved or zero-bubble schedule.",
    ),
    "straggler.rank": Code(
        "One rank comes late to the collectives; the others wait for it. Equal step times do not show that.",
        "Look at that rank's host, device and stack.",
    ),
    "straggler.node": Code(
        "All ranks of one host come late.",
        "Look at the host: clocks, heat, other processes, its network; `dlaunch preflight --hosts`.",
    ),
    "straggler.dataloader": Code(
        "One rank waits for its data longer than the others.",
        "Look at its shard, loader workers and storage.",
    ),
    "straggler.checkpoint": Code(
        "One rank writes a checkpoint while the others wait.",
        "Save asynchronously, by all ranks, or less often.",
    ),
    "straggler.clock": Code(
        "One device computes at a lower clock than the others.",
        "Look at heat and power of that host; nvidia-smi -q -d PERFORMANCE names the reason.",
    ),
    "straggler.network": Code(
        "One host's network is slower than the others'.",
        "Look at its adapters' rate, counters and cable; `dlaunch preflight` measures pairs.",
    ),
    "straggler.gdr": Code(
        "One rank sends through host memory where the others use GPUDirect RDMA.",
        "Load nvidia-peermem there, or use a kernel with DMA-BUF.",
    ),
    "straggler.expert_imbalance": Code(
        "The ranks of some experts have more tokens than the others.",
        "Raise the balance loss or bias, or cap the capacity.",
    ),
    "straggler.gc": Code(
        "Python's garbage collection stops one rank at a time.",
        "gc.disable(), and collect at the same step on all ranks.",
    ),
    "numeric.nonfinite": Code(
        "A loss, gradient or activation is not finite.",
        "Begin at the rank and step where it was first seen: data, learning rate, loss scale.",
    ),
    "numeric.replica_divergence": Code(
        "Copies of the same parameters differ between replicas.",
        "Find the step at which they parted: a missing all-reduce, other seeds, or a faulty device.",
    ),
    "data.duplicate_shards": Code(
        "Ranks read the same samples.",
        "Give the sampler rank and world size of the data axes; seed workers by rank.",
    ),
    "data.order_not_shuffled": Code(
        "Every epoch has the same order.",
        "Call sampler.set_epoch(epoch).",
    ),
    "rng.group_mismatch": Code(
        "Random numbers differ in a group where they must be equal.",
        "Seed by the coordinate on the other axes, not by rank.",
    ),
    "mesh.axis_crosses_node": Code(
        "An axis with heavy traffic (tp, ep, cp) leaves its fast domain.",
        "Let `dlaunch run` place the ranks, or make the axis no longer than the domain; `dlaunch place` shows it.",
    ),
    "mesh.axis_crosses_switch": Code(
        "An axis leaves its leaf switch though hosts below one leaf would do.",
        "Give the inventory `switch:` or the scheduler its topology; `dlaunch place` shows the gain.",
    ),
    "mesh.rank_map_differs": Code(
        "Ranks are on other nodes than planned: the rendezvous sorted them.",
        "Static rendezvous with --node-rank, as `dlaunch run` does.",
    ),
    "mesh.group_mismatch": Code(
        "A group of one name has other members on different ranks.",
        "Make all groups on all ranks, in one order.",
    ),
    "mesh.device_order": Code(
        "A rank uses another device than planned.",
        "Do not set CUDA_VISIBLE_DEVICES in the script; use LOCAL_RANK.",
    ),
    "mesh.nic_far": Code(
        "A rank's adapter hangs on another root than its device.",
        "Leave the choice to NCCL, or order NCCL_IB_HCA by device.",
    ),
    "mesh.numa_binding": Code(
        "A rank runs on the CPUs of another NUMA node than its device.",
        "Do not bind in the script; `dlaunch run` binds by device.",
    ),
    "mesh.degree_mismatch": Code(
        "The degrees' product is not the world size, or does not divide heads, experts or layers.",
        "Choose others; `dlaunch plan` lists those that fit.",
    ),
    "doctor.rule_failed": Code(
        "A rule of the doctor raised on this evidence: its findings are missing, the others stand.",
        "Report it, with the evidence (`ddoctor collect --anonymize`).",
    ),
    "plugin.failed": Code(
        "An installed package's entry point cannot be loaded, or its rule raises: its findings are missing.",
        "Upgrade or uninstall the package that is named.",
    ),
}
