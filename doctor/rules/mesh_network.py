"""Where axes lie in the network, and which devices and NICs ranks really use, from logs and the switches' tree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.job import JobFacts
from doctor.evidence.nccl_log import NcclComm, NcclProcess
from doctor.evidence.switches import SwitchTree
from doctor.rules import Rule
from doctor.rules.events import events_of, said, who
from doctor.rules.fleet import fleet_of
from doctor.rules.mesh import NEAR_AXES, groups_of
from doctor.text import fold, fold_hosts, name_ranks
from launcher.common.finding import Evidence, Finding

SHOWN = 6
DENSE_AXES = (*NEAR_AXES, "dp_shard")  # that send in every layer


def across_switches(evidence: EvidenceSet) -> Iterator[Finding]:
    """Groups of dense axes that lie under several leaf switches though their hosts would fit one."""
    trees = evidence.of(SwitchTree)
    for job in evidence.of(JobFacts)[-1:] if trees else ():
        leaves = {host: path[-1] for tree in trees for host, path in tree.paths.items() if path}
        room = Counter(leaves[host] for host in set(job.hosts.values()) if host in leaves)
        for axis in DENSE_AXES:
            if (found := _split(job, axis, leaves)) and max(hosts for _, hosts in found) <= max(room.values()):
                yield _crossing(job, axis, [ranks for ranks, _ in found], leaves)


def _split(job: JobFacts, axis: str, leaves: Mapping[str, str]) -> list[tuple[tuple[int, ...], int]]:
    """(ranks, number of hosts) of the axis' groups that are under more than one leaf."""
    found = []
    for ranks in groups_of(job, axis):
        hosts = {job.hosts[rank] for rank in ranks}
        if hosts <= leaves.keys() and len({leaves[host] for host in hosts}) > 1:
            found.append((ranks, len(hosts)))
    return found


def _crossing(job: JobFacts, axis: str, split: Sequence[tuple[int, ...]], leaves: Mapping[str, str]) -> Finding:
    ranks = tuple(sorted({rank for group in split for rank in group}))
    hosts = tuple(sorted({job.hosts[rank] for rank in ranks}))
    return Finding(
        "mesh.axis_crosses_switch",
        "warning",
        f"{len(split)} of the {axis} groups lie under several leaf switches though their hosts would fit one: "
        f"{fold_hosts(hosts)}.",
        "Order the nodes by switch (dlaunch does; Slurm: --switches=1, or the order of scontrol show topology).",
        0.85,
        ranks=ranks,
        hosts=hosts,
        detail={"axis": axis, "groups": [fold(group) for group in split]},
        evidence=[
            Evidence(
                "job",
                job.where,
                f"{axis} {fold(group)}: " + ", ".join(sorted({leaves[job.hosts[one]] for one in group})),
            )
            for group in split[:SHOWN]
        ],
    )


def other_groups(evidence: EvidenceSet) -> Iterator[Finding]:
    """Groups of an axis that have other members than the job's plan gives that axis."""
    groups = evidence.once(fleet_of).groups
    for job in evidence.of(JobFacts)[-1:]:
        for axis, degree in job.mesh.items():
            planned = {tuple(sorted(ranks)) for ranks in groups_of(job, axis)}
            real = {group.members for group in groups if group.sure and axis_of(group.kind) == axis}
            if degree > 1 and real and planned and not real <= planned:  # ep, a second view, has none
                yield _laid_out(axis, sorted(real - planned), sorted(planned), job)


def axis_of(kind: str) -> str:
    """`tp` of `mesh_tp`, as DeviceMesh names its groups; any other name is its own."""
    return kind.removeprefix("mesh_")


def _laid_out(axis: str, real: Sequence[tuple[int, ...]], planned: Sequence[tuple[int, ...]], job: JobFacts) -> Finding:
    ranks = tuple(sorted({rank for members in real for rank in members}))
    told = "; ".join(map(fold, real[:SHOWN]))
    meant = "; ".join(map(fold, planned[:SHOWN]))
    return Finding(
        "mesh.group_mismatch",
        "error",
        f"The groups of axis {axis} have members {told} where the plan has {meant}: the script lays its mesh out in "
        "another order of axes.",
        "Build the mesh in the order of DLAUNCH_MESH (outermost axis first), or give dlaunch the script's own order in "
        "--mesh.",
        0.9,
        ranks=ranks,
        hosts=tuple(sorted({job.hosts[rank] for rank in ranks if rank in job.hosts})),
        detail={"axis": axis, "members": told, "planned": meant},
        evidence=[Evidence("job", job.where, f"{axis}: {meant}")],
    )


def device_order(evidence: EvidenceSet) -> Iterator[Finding]:
    """Hosts on which the order of the devices is not that of the ranks, by the communicators of all ranks."""
    for host, ranks in _world_devices(evidence.of(NcclProcess)).items():
        devices = [ranks[rank].cuda_device for rank in sorted(ranks)]
        if len(set(devices)) < len(devices) or devices == sorted(devices, key=lambda device: device or 0):
            continue  # each rank sees one device alone, or they are in order
        odd = tuple(rank for rank, device in zip(sorted(ranks), sorted(map(_index, devices)), strict=True)
                    if ranks[rank].cuda_device != device)  # fmt: skip
        told = ", ".join(f"rank {rank} on device {ranks[rank].cuda_device}" for rank in sorted(ranks)[:8])
        yield Finding(
            "mesh.device_order",
            "warning",
            f"On {host} {name_ranks(odd)} use devices in another order than their ranks ({told}): neighbours in the "
            "mesh are not neighbours in the machine.",
            "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])), and no other order in CUDA_VISIBLE_DEVICES than "
            "the plan's",
            0.7,
            ranks=odd,
            hosts=(host,),
            evidence=[
                Evidence("nccl_log", f"rank {rank}", f"cudaDev {ranks[rank].cuda_device}") for rank in odd[:SHOWN]
            ],
        )


def _index(device: int | None) -> int:
    return -1 if device is None else device


def _world_devices(processes: Sequence[NcclProcess]) -> dict[str, dict[int, NcclComm]]:
    """host → rank → its part in the largest communicator, where that tells the device."""
    size = max((comm.size for one in processes for comm in one.comms), default=0)
    found: defaultdict[str, dict[int, NcclComm]] = defaultdict(dict)
    for one in processes:
        for comm in one.comms:
            if one.host and comm.size == size and comm.cuda_device is not None:
                found[one.host][comm.rank] = comm
    return dict(sorted(found.items()))


def far_adapters(evidence: EvidenceSet) -> Iterator[Finding]:
    """Adapters that NCCL finds too far from a device for GPUDirect RDMA."""
    far = [one for one in events_of(evidence, "gdr_disabled") if one["distance"]]
    if far and not events_of(evidence, "gdr_enabled"):
        yield said(
            far,
            "mesh.nic_far",
            f"The adapters of {who(far)} are far from its devices (distance {far[0]['distance']}: over the host's root "
            "or the link between processors), so NCCL goes through host memory.",
            "use the adapter under the device's own PCIe switch (nvidia-smi topo -m; NCCL_IB_HCA), or allow the way by "
            "NCCL_NET_GDR_LEVEL=SYS where the platform can",
            0.75,
            "warning",
        )


RULES = (
    Rule(("mesh.axis_crosses_switch",), ("mesh", "straggler"), across_switches),
    Rule(("mesh.group_mismatch",), ("mesh",), other_groups),
    Rule(("mesh.device_order",), ("mesh",), device_order),
    Rule(("mesh.nic_far",), ("mesh", "straggler"), far_adapters),
)
