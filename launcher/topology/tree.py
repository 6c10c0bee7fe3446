"""The tree of domains: sets of devices that lie closer to each other than to the rest, inside and above hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.topology.links import is_direct
from launcher.topology.model import HostTopology, connected

Member = tuple[str, int]  # host and index of a device; -1 for a host without devices
NamedSet = tuple[str, frozenset[Member]]


@dataclass(frozen=True)
class Domain:
    """`names` has several entries where levels cannot be told apart, as an NVLink clique that is a NUMA node."""

    names: tuple[str, ...]
    members: tuple[Member, ...]
    children: tuple[Domain, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "devices": [list(member) for member in self.members],
            "children": [child.to_json() for child in self.children],
        }

    def lines(self, indent: int = 0) -> list[str]:
        """For people: one line for each domain, its own devices behind it."""
        below = {member for child in self.children for member in child.members}
        own = [f"GPU{index}" for _, index in self.members if index >= 0 and (_, index) not in below]
        line = "  " * indent + " = ".join(self.names) + (f": {' '.join(own)}" if own else "")
        return [line, *(text for child in self.children for text in child.lines(indent + 1))]


def domain_tree(hosts: Sequence[HostTopology]) -> Domain:
    """All hosts in one tree. Sets that cross a set of higher rank are left out: then the matrix tells, not the tree.

    Rank inside a host: NVLink components, PCIe switches, NUMA nodes; above: switches from the leaf up, NVLink fabrics.
    """
    sets = [named for host in hosts for named in host_sets(host)] + above_sets(hosts)
    accepted: list[NamedSet] = []
    for name, members in sets:
        if all(members <= other or other <= members or not members & other for _, other in accepted):
            accepted.append((name, members))
    everything = frozenset(member for host in hosts for member in members_of(host))
    return nest("cluster", everything, accepted)


def members_of(host: HostTopology) -> list[Member]:
    return [(host.host, device.index) for device in host.devices] or [(host.host, -1)]


def host_sets(host: HostTopology) -> list[NamedSet]:
    """The host itself and the sets of its devices, most telling first."""
    index = {device.name: device.index for device in host.devices}
    found = [(f"host {host.host}", frozenset(members_of(host)))]
    found += [(direct_name(host), group(host, part)) for part in host.components if len(part) > 1]
    for kinds, name in (({"PIX"}, "PCIe switch"), ({"PIX", "PXB"}, "PCIe switches")):
        pairs = [(index[link.a], index[link.b]) for link in host.device_links if link.kind in kinds]
        found += [(name, group(host, part)) for part in connected(index.values(), pairs) if len(part) > 1]
    nodes = sorted({device.numa for device in host.devices if device.numa is not None})
    for node in nodes:
        found.append((f"NUMA {node}", group(host, [d.index for d in host.devices if d.numa == node])))
    return found


def direct_name(host: HostTopology) -> str:
    """What the vendor calls its links between devices."""
    kinds = sorted({link.kind for link in host.device_links if is_direct(link.kind)})
    return "/".join("NVLink" if kind == "NV" else kind for kind in kinds)


def group(host: HostTopology, indexes: Iterable[int]) -> frozenset[Member]:
    return frozenset((host.host, index) for index in indexes)


def above_sets(hosts: Sequence[HostTopology]) -> list[NamedSet]:
    """Switches by their path, and NVLink fabrics over hosts."""
    found: dict[str, set[Member]] = {}
    for host in hosts:
        for depth in range(len(host.switches), 0, -1):
            found.setdefault(f"switch {host.switches[depth - 1]}", set()).update(members_of(host))
        for device in host.devices:
            if device.fabric:
                found.setdefault(f"NVLink fabric {device.fabric}", set()).add((host.host, device.index))
    return [(name, frozenset(members)) for name, members in found.items()]


def nest(name: str, members: frozenset[Member], sets: Sequence[NamedSet]) -> Domain:
    """The tree of sets that are all nested or disjoint; equal sets become one domain."""
    names = [name] if name != "cluster" or not any(inner == members for _, inner in sets) else []
    names += [other for other, inner in sets if inner == members and other not in names]
    inside = [(other, inner) for other, inner in sets if inner < members]
    tops = [inner for _, inner in inside if not any(inner < other for _, other in inside)]
    children = []
    for top in dict.fromkeys(tops):
        below = [(other, inner) for other, inner in inside if inner <= top]
        first = next(other for other, inner in below if inner == top)
        children.append(nest(first, top, below))
    ordered = sorted(children, key=lambda child: child.members)
    return Domain(tuple(names), tuple(sorted(members)), tuple(ordered))
