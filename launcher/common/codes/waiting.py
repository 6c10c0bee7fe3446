"""Codes of jobs that stand still, or never began to move."""

from __future__ import annotations

from launcher.common.codes.code import Code

CODES = {
    "hang.absent_rank": Code(
        "A rank has not entered the collective in which the others wait; `sub_cause` says what it does instead "
        "(data loader, checkpoint, compiler, lock file, GIL, exception, ended, stopped).",
        "Look at that rank alone, at the line of its stack that is named; the waiting ranks are in order.",
    ),
    "hang.desync": Code(
        "At one number of one group ranks called different collectives: a branch, an order, a call too many or few.",
        "Look for a branch that not all members take: logging, saving or evaluating on one rank, an early return.",
    ),
    "hang.shape_mismatch": Code(
        "Ranks called the same collective with other sizes or another number of elements.",
        "Pad, drop the last batch, or exchange sizes first; build the same model on all ranks.",
    ),
    "hang.cross_group_cycle": Code(
        "One rank waits in group X for a second one, which waits in group Y for the first: their calls have another "
        "order. Named is the rank whose count of calls differs from its peers'.",
        "Give all ranks one order of collectives over all groups; look for a call that one of them left out.",
    ),
    "hang.p2p_unmatched": Code(
        "A send or receive has no partner, both sides send first, or a two-rank communicator begins in the middle.",
        "Pair the calls (batch_isend_irecv), and make each communicator once before training.",
    ),
    "hang.concurrent_threads": Code(
        "Two threads of a rank issue collectives on one group, so their order differs between ranks.",
        "Issue from one thread, or give each thread a process group of its own.",
    ),
    "hang.stalled_collective": Code(
        "All members have entered a collective and none leaves it: the cause is below the program.",
        "Read the network, device and library findings; `ddoctor nccl` on the logs, `dlaunch preflight` on the hosts.",
    ),
    "hang.watchdog_blocked": Code(
        "The watchdog itself is stuck (in a CUDA call, for the GIL, at the end), so its timeouts say nothing.",
        "Look at that thread's stack (`ddoctor stacks --native`); the job's own hang may be elsewhere.",
    ),
    "hang.teardown": Code(
        "All calls are complete and the processes stand in destroy, abort or exit.",
        "Wait for all work, call destroy_process_group on all ranks, and only then exit.",
    ),
    "hang.rendezvous": Code(
        "The ranks never came together: no group exists, or nodes are missing.",
        "Start the missing node; compare the endpoint, world size and rendezvous id of all nodes.",
    ),
    "hang.none_slow": Code(
        "It moves, only slowly: two looks differ.",
        "Ask `ddoctor straggler`, or wait.",
    ),
    "bootstrap.wrong_interface": Code(
        "A rank uses, or was told, a network interface that is not there or that peers do not reach.",
        "Name the interface between the nodes: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME.",
    ),
    "bootstrap.unreachable": Code(
        "A rank cannot reach an address of another: refused, no route, or timed out.",
        "Let TCP through between the nodes on all ports of that interface, or choose another interface.",
    ),
    "bootstrap.loopback_master": Code(
        "The master address is loopback on several hosts: each takes itself for the master.",
        "Use an address that all hosts reach; take the host's own name off 127.0.1.1 in /etc/hosts.",
    ),
    "bootstrap.foreign_peer": Code(
        "Something that is no rank of this job connected: another job on that port, an old process, a port scanner.",
        "End the old processes, give each job a port of its own, keep scanners off the hosts.",
    ),
    "bootstrap.stale_endpoint": Code(
        "The rendezvous or port belongs to an earlier attempt.",
        "End the earlier processes; use a new port and rendezvous id for each attempt.",
    ),
    "bootstrap.name_mismatch": Code(
        "A host's name means different addresses on different hosts, or nothing on one.",
        "Put the name right in DNS or /etc/hosts of all hosts and containers, or use addresses.",
    ),
    "init.shm_full": Code(
        "/dev/shm has no room for NCCL's or the data loader's segments.",
        "docker --shm-size=16g or --ipc=host; remove stale /dev/shm/nccl-*.",
    ),
    "init.memlock": Code(
        "A process may not lock enough memory to register buffers with the adapter.",
        "ulimit -l unlimited (LimitMEMLOCK=infinity, --ulimit memlock=-1).",
    ),
    "init.queue_limit": Code(
        "The adapter has no queue, memory region or other resource left.",
        "End left-over processes, use fewer channels or peers, bring driver and plugin to one release.",
    ),
    "init.file_descriptors": Code(
        "A process ran out of file descriptors.",
        "ulimit -n 1048576 on every host; fewer data loader workers.",
    ),
    "init.duplicate_device": Code(
        "Two ranks use the same device.",
        "Set the device from LOCAL_RANK before the first collective; look for two launches on one host.",
    ),
    "init.device_invisible": Code(
        "A device or adapter that peers have is not there for this process or container.",
        "Compare CUDA_VISIBLE_DEVICES, the container's --gpus and LOCAL_RANK with nvidia-smi -L; see the kernel log.",
    ),
    "init.host_register": Code(
        "Shared memory could not be pinned for the device, though /dev/shm has room.",
        "Raise the locked-memory limit; look at the container's and the driver's restrictions.",
    ),
    "init.p2p_isolated": Code(
        "Ranks of one host cannot share device memory: containers with their own /proc, IPC or devices.",
        "One container a host, or --ipc=host --pid=host; NCCL_CUMEM_ENABLE=0 or NCCL_P2P_DISABLE=1 works around.",
    ),
    "cascade.remote_error": Code(
        "A peer closed the connection: this rank is a victim.",
        "Look who ended first, or which rank is silent.",
    ),
    "cascade.terminated": Code(
        "This rank was ended (SIGTERM, SIGABRT, scheduler) after another had failed.",
        "Look at the first error of the first rank or node that ended.",
    ),
    "benign.timeout_too_short": Code(
        "A long checkpoint, compilation or evaluation outlasts the timeout while everybody is alive.",
        "A longer timeout for that phase, or a barrier with its own.",
    ),
    "benign.host_frozen": Code(
        "All ranks report far more time than their timeout: the hosts stood still (suspended), not the job.",
        "Look at the hosts and their hypervisor at that time.",
    ),
    "benign.warning_only": Code(
        "Lines that look alarming and have no consequence.",
        "Nothing.",
    ),
    "benign.debug_mode_false_mismatch": Code(
        "TORCH_DISTRIBUTED_DEBUG=DETAIL reports a mismatch that is none (barrier, or a rank that is merely absent).",
        "Leave it; look for the rank that is absent.",
    ),
}
