"""The cluster to plan for: equal nodes from the command line, or the probed hosts of an inventory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from launcher.errors import InputError
from launcher.placement.axes import Axis, pattern_of
from launcher.placement.cluster import Cluster, Network, Node, make_node, uniform
from launcher.placement.cost import slowest
from launcher.placement.measured import UNMEASURED, Measured
from launcher.spec import MeshSpec
from launcher.topology.model import HostTopology
from workloads.common.flops import PEAK_FLOPS, family

# GB of memory and GB/s of a ring between devices of one node. H100: DESIGN's seed for NVLink 4; A100 and B200 have 2/3
# and 2 times its lanes' rate; L40S has PCIe 4 x16.
SEEDS = {"H200": (141, 300.0), "H100": (80, 300.0), "A100": (80, 200.0), "B200": (180, 600.0), "L40S": (48, 24.0)}
PCIE5 = frozenset({"H200", "H100", "B200"})
PCIE4_GBPS, PCIE5_GBPS = 32.0, 64.0  # one direction of x16
UTILIZATION = 0.5  # of the peak: what well-tuned dense training reaches in its matrix products


@dataclass(frozen=True)
class DeviceType:
    """`memory` in bytes, `flops` as reached in a step (not the peak).

    A device of 80 "GB" has 80 GiB: the 7 % between are left to the context, NCCL's buffers and fragmentation.
    """

    name: str
    memory: float
    flops: float
    gbps: float | None = None  # of a ring inside a node, where the type alone tells it
    pcie: float = PCIE4_GBPS  # to the host


def device_type(text: str | None, gigabytes: float | None = None, tflops: float | None = None) -> DeviceType:
    """`h100-80g` or a model's name as nvidia-smi prints it; measured values replace the type's. Raises InputError."""
    kind = family(text or "")
    if kind is None and not (gigabytes and tflops):
        raise InputError(
            f"device type {text!r} is not known" if text else "the devices' type is not known",
            where="--device-type",
            help=f"one of {', '.join(f'{name.lower()}-{size}g' for name, (size, _) in SEEDS.items())}, "
            "or --device-gb and --tflops",
        )
    printed = re.search(r"(\d+)\s*GB?\b", (text or "").upper())
    size, gbps = SEEDS[kind] if kind else (0, None)
    return DeviceType(
        name=text or "device",
        memory=(gigabytes or (int(printed[1]) if printed else size)) * 1e9,
        flops=tflops * 1e12 if tflops else PEAK_FLOPS[kind or ""] * UTILIZATION,
        gbps=gbps,
        pcie=PCIE5_GBPS if kind in PCIE5 else PCIE4_GBPS,
    )


@dataclass(frozen=True)
class Machine:
    """Nodes with equally many ranks each, and how fast groups of them communicate.

    `measured` is empty where links are seeds.
    """

    device: DeviceType
    per_node: int
    cluster: Cluster
    measured: Measured = UNMEASURED
    notes: tuple[str, ...] = ()
    _known: dict[tuple[str, int, int], float] = field(default_factory=dict, compare=False)

    @property
    def nodes(self) -> int:
        return len(self.cluster.nodes)

    @property
    def world(self) -> int:
        return self.nodes * self.per_node

    def alpha(self, stride: int, members: int) -> float:
        """Seconds a message of groups of `members` ranks, `stride` apart; 0 where it was not measured."""
        return self.measured.alpha(one_node=self.per_node % (stride * members) == 0)

    def gbps(self, axis: str, stride: int, members: int) -> float:
        """GB/s of the slowest of all groups of `members` ranks, `stride` apart; ranks fill node after node."""
        if members == 1:
            return inf
        pattern = pattern_of(axis, members)
        key = (pattern, stride, members)
        if key not in self._known:
            mesh = MeshSpec({"outer": self.world // (stride * members), "group": members, "inner": stride})
            groups = tuple(tuple(group) for group in mesh.groups("group"))
            places = [divmod(rank, self.per_node) for rank in range(self.world)]
            self._known[key] = slowest(self.cluster, Axis(axis, pattern, groups), places).gbps
        return self._known[key]


def equal_nodes(
    nodes: int, per_node: int, device: DeviceType, nics_per_node: int | None = None, nic_gbit: float | None = None
) -> Machine:
    """A cluster that exists on paper; by default one NIC of 400 Gbit/s for each device. Raises InputError."""
    if device.gbps is None:
        raise InputError("the link between its devices is not known", where="--device-type", help="h100-80g, …")
    share = (nics_per_node or per_node) * (nic_gbit or 400.0) / 8 / per_node
    weights, rails = uniform(per_node, device.gbps), (-1,) * per_node
    names = (f"node{number}" for number in range(nodes))
    made = tuple(Node(HostTopology(name), (), per_node, weights, rails, share) for name in names)
    return Machine(device, per_node, Cluster(made))


def probed_nodes(hosts: Sequence[HostTopology], per_node: int | None, device: DeviceType, network: Network) -> Machine:
    """Real hosts; `per_node` defaults to the devices of the host that has fewest. Raises InputError."""
    ranks = per_node or min(len(host.devices) for host in hosts) or 1
    nodes = tuple(make_node(host, ranks, network) for host in hosts)
    if short := [node.name for node in nodes if node.slots < ranks]:
        raise InputError(f"{short[0]} has fewer than {ranks} free devices", where="--devices-per-node")
    assumed = ("the NICs' speed is assumed: give --nic-gbps",) if len(nodes) > 1 and network.assumed(hosts) else ()
    return Machine(device, ranks, Cluster(nodes), notes=assumed)


def with_measured(machine: Machine, measured: Measured) -> Machine:
    """The machine with measured links in place of its seeds, where there are any."""
    if not measured:
        return machine
    cluster = Cluster(tuple(measured.applied(machine.cluster.nodes)))
    return replace(machine, cluster=cluster, measured=measured, notes=(measured.note(),), _known={})
