"""What the hardware of a host is: devices, NICs, links between them, and what the evidence did not show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from launcher.topology.links import gbps, is_direct, spell

PREFERENCE = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")  # distance of a NIC, nearest first


@dataclass(frozen=True)
class Device:
    """One accelerator. `index` is the vendor tool's number, `name` the label of its matrix (`GPU0`).

    `cpus` is a CPU list as the kernel writes it (`0-11,24-35`); `fabric` names the NVLink fabric over hosts that it
    belongs to (cluster UUID and clique), None outside one.
    """

    index: int
    name: str
    uuid: str | None = None
    bdf: str | None = None
    numa: int | None = None
    cpus: str | None = None
    model: str | None = None
    busy: bool = False
    fabric: str | None = None

    @property
    def handle(self) -> str:
        """What the variable of visible devices calls it: the UUID, or the index where no UUID is known."""
        return self.uuid or str(self.index)


@dataclass(frozen=True)
class Nic:
    """One network device. `name` is its label in the matrix (`NIC0`), `device` the kernel's name (`mlx5_0`).

    `up` is the state of the port, None where nothing tells it; `gbps` its rate in Gbit/s.
    """

    name: str
    device: str | None = None
    bdf: str | None = None
    numa: int | None = None
    netdev: str | None = None
    up: bool | None = None
    gbps: float | None = None
    rdma: bool = True

    @property
    def label(self) -> str:
        """The kernel's name where it is known."""
        return self.device or self.name


@dataclass(frozen=True)
class Link:
    """A connection between two labels, as printed: kind `NV` with count 18 for `NV18`, kind `PIX` with count 1."""

    a: str
    b: str
    kind: str
    count: int = 1

    @property
    def gbps(self) -> float:
        return gbps(self.kind, self.count)

    @property
    def printed(self) -> str:
        return spell(self.kind, self.count)

    def __str__(self) -> str:
        return f"{self.a}-{self.b} {self.printed}"


@dataclass(frozen=True)
class HostTopology:
    """One host. Everything may be empty: a host without accelerators has no devices and no links.

    `numa_cpus` maps a NUMA node to its CPU list, `switches` is the path of network switches from the outermost to the
    leaf, `gaps` says in words what the evidence did not show or contradicted, `p2p` holds peer-access states.
    """

    host: str
    devices: tuple[Device, ...] = ()
    nics: tuple[Nic, ...] = ()
    links: tuple[Link, ...] = ()
    gaps: tuple[str, ...] = ()
    numa_cpus: Mapping[int, str] = field(default_factory=dict)
    allowed_cpus: str | None = None
    switches: tuple[str, ...] = ()
    p2p: tuple[tuple[str, str, str], ...] = ()
    opaque: bool = False  # a virtual machine hides the PCIe paths: their distances are unknown, not equal
    opaque_nics: bool = False  # the same for the paths between devices and NICs
    visible_variable: str = "CUDA_VISIBLE_DEVICES"  # by which a process is given devices; empty: we start none on these

    @cached_property
    def _by_pair(self) -> dict[frozenset[str], Link]:
        return {frozenset((link.a, link.b)): link for link in self.links}

    def link(self, a: str, b: str) -> Link | None:
        """The link between two labels, None where it is not known."""
        return self._by_pair.get(frozenset((a, b)))

    @cached_property
    def device_links(self) -> tuple[Link, ...]:
        names = {device.name for device in self.devices}
        return tuple(link for link in self.links if link.a in names and link.b in names)

    @cached_property
    def nic_links(self) -> tuple[Link, ...]:
        """Links with at least one end that is no device."""
        names = {device.name for device in self.devices}
        return tuple(link for link in self.links if not (link.a in names and link.b in names))

    @cached_property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """Indexes of the devices joined by NVLink or its like, singletons included."""
        index = {device.name: device.index for device in self.devices}
        joined = [(index[link.a], index[link.b]) for link in self.device_links if is_direct(link.kind)]
        return connected(index.values(), joined)

    def near_nics(self, device: Device) -> tuple[Nic, ...]:
        """The NICs at the shortest known distance from `device`; empty where a virtual machine hides distances."""
        if not (self.nic_links or self.nics):
            return ()
        known = {nic.name: nic for nic in self.nics}
        by_kind: dict[str, list[Nic]] = {}
        for link in self.nic_links:
            if not self.opaque_nics and device.name in (link.a, link.b) and link.kind in PREFERENCE:
                other = link.b if link.a == device.name else link.a
                if not any(other == peer.name for peer in self.devices):
                    by_kind.setdefault(link.kind, []).append(known.get(other, Nic(other)))
        nearest = next((kind for kind in PREFERENCE if kind in by_kind), None)
        if nearest is not None:
            return tuple(by_kind[nearest])
        return tuple(nic for nic in self.nics if nic.rdma and nic.numa is not None and nic.numa == device.numa)


def connected(members: Iterable[int], pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Connected components of a graph, each sorted, ordered by their smallest member."""
    parent = {member: member for member in members}

    def root(member: int) -> int:
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    for a, b in pairs:
        parent[root(a)] = root(b)
    groups: dict[int, list[int]] = {}
    for member in sorted(parent):
        groups.setdefault(root(member), []).append(member)
    return tuple(sorted(tuple(group) for group in groups.values()))
