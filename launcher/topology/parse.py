"""Any tool's text -> one HostTopology. Pure: what the text does not show becomes a gap, never an exception."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from launcher.topology.affinity import Affinity, read_affinity, without_cpuset
from launcher.topology.clean import clean_lines
from launcher.topology.device_query import described, read_tables, short_bdf
from launcher.topology.grammar import BDF, DEVICE, Block, read_blocks
from launcher.topology.links import is_direct
from launcher.topology.model import Device, HostTopology, Link
from launcher.topology.nics import joined, read_ibdev2netdev, read_legend
from launcher.topology.resolve import Resolved, kind_of, resolve

ROCM_NUMA = re.compile(r"[A-Z]{1,2}[PC]U\s*\[?(\d+)\]?\s*:\s*\(Topology\)\s*Numa (Node|Affinity):\s*(-?\d+)")
NIC_CAP = re.compile(r"(\d+) NICs found in the topology, only displaying (\d+)")


def parse_topology(text: str, host: str = "") -> HostTopology:
    """Read the output of one or more topology tools of one host, in any order and with anything between them."""
    lines = clean_lines(text)
    matrix = Matrix.read(lines)
    devices, query_gaps = described(matrix.devices, read_tables(lines))
    devices, cpu_gaps = without_cpuset(devices, matrix.links, matrix.blank_cpus)
    nics = joined(matrix.nics, read_legend(lines), read_ibdev2netdev(lines))
    topology = HostTopology(
        host,
        devices,
        nics,
        matrix.links,
        (*matrix.gaps, *without_links(matrix), *capped_nics(lines), *query_gaps, *cpu_gaps),
        p2p=matrix.p2p,
    )
    return with_opacity(topology)


@dataclass(frozen=True)
class Matrix:
    """What the matrices of one text say together."""

    devices: tuple[Device, ...]
    nics: tuple[str, ...]
    links: tuple[Link, ...]
    p2p: tuple[tuple[str, str, str], ...]
    gaps: tuple[str, ...]
    blank_cpus: bool

    @classmethod
    def read(cls, lines: Sequence[str]) -> Matrix:
        blocks = read_blocks(lines)
        resolved = [(kind, resolve(block)) for block in blocks if (kind := kind_of(block)) != "other"]
        links, gaps = merged(result for kind, result in resolved if kind == "links")
        labels = list(dict.fromkeys(row.label for block in blocks for row in block.rows))
        names = device_names([label for label in labels if DEVICE.fullmatch(label)])
        affinities = affinity_by_label(blocks, lines)
        numa, numa_gaps = rocm_numa(lines)
        devices = [device(label, names, affinities.get(label, Affinity()), numa) for label in names]
        return cls(
            devices=tuple(sorted(devices, key=lambda device: device.index)),
            nics=tuple(label for label in labels if label not in names),
            links=ordered_links(links, names),
            p2p=tuple(state for kind, result in resolved if kind == "p2p" for state in result.p2p),
            gaps=(
                *gaps,
                *(gap for kind, result in resolved if kind == "p2p" for gap in result.gaps),
                *numa_gaps,
                *spanned(affinities),
            ),
            blank_cpus=any(affinity.blank for label, affinity in affinities.items() if label in names),
        )


def ordered_links(links: Iterable[Link], names: Mapping[str, str]) -> tuple[Link, ...]:
    """Links by the devices' names, each from its earlier end to its later one: devices by number, then NICs."""

    def key(label: str) -> tuple[bool, int, str]:
        number = re.search(r"\d+$", names.get(label, ""))
        return label not in names, int(number[0]) if number else 0, label

    found = []
    for link in links:
        a, b = sorted((link.a, link.b), key=key)
        found.append((key(a), key(b), replace(link, a=names.get(a, a), b=names.get(b, b))))
    return tuple(link for *_, link in sorted(found, key=lambda entry: entry[:2]))


def device_names(labels: Sequence[str]) -> dict[str, str]:
    """Labels as printed -> names: a matrix keyed by PCI address numbers its devices in its own order."""
    return {label: f"GPU{i}" if re.fullmatch(BDF, label) else label for i, label in enumerate(labels)}


def device(label: str, names: Mapping[str, str], affinity: Affinity, numa: Mapping[int, int]) -> Device:
    name = names[label]
    plain = re.fullmatch(r"(?:[A-Z]+|Phy-ID|Device )(\d+)", name)
    index = int(plain[1]) if plain else list(names).index(label)
    bdf = short_bdf(label) if re.fullmatch(BDF, label) else None
    return Device(index, name, bdf=bdf, numa=numa.get(index, affinity.numa), cpus=affinity.cpus)


def merged(results: Iterable[Resolved]) -> tuple[list[Link], list[str]]:
    """Links of several matrices of one host; where two contradict, neither is believed."""
    links: dict[frozenset[str], Link] = {}
    gaps: list[str] = []
    wrong: set[frozenset[str]] = set()
    for result in results:
        gaps += [gap for gap in result.gaps if gap not in gaps]
        for link in result.links:
            pair = frozenset((link.a, link.b))
            before = links.setdefault(pair, link)
            if before.printed != link.printed and pair not in wrong:
                wrong.add(pair)
                gaps.append(f"{before} in one matrix, {link.printed} in another")
    return [link for pair, link in links.items() if pair not in wrong], gaps


def affinity_by_label(blocks: Iterable[Block], lines: Sequence[str]) -> dict[str, Affinity]:
    """CPU and NUMA of each row, from the first matrix that has such columns; not where the text may end in them."""
    end = next((line for line in reversed(lines) if line.strip()), "")
    found: dict[str, Affinity] = {}
    for block in blocks:
        for row in block.rows if block.titles else ():
            tail = row.tail.split()
            cut = end.endswith(row.raw) and len(tail) < len(block.titles) and tail[-1:] != ["N/A"]
            unclear = cut or row.overfull or row.elided
            found.setdefault(row.label, Affinity() if unclear else read_affinity(row, block.titles))
    return found


def spanned(affinities: Mapping[str, Affinity]) -> list[str]:
    texts = {label: affinity.numa_text for label, affinity in affinities.items() if affinity.numa is None}
    several = [label for label, text in texts.items() if text and re.fullmatch(r"\d+(?:[-,]\d+)+", text)]
    return (
        [f"NUMA node of {', '.join(several)}: several are given, as virtual machines and Grace CPUs do"]
        if several
        else []
    )


def rocm_numa(lines: Iterable[str]) -> tuple[dict[int, int], list[str]]:
    """NUMA node of each device from rocm-smi's lines; where node and affinity differ, it is a gap."""
    said: dict[int, set[int]] = {}
    for line in lines:
        if match := ROCM_NUMA.search(line):
            said.setdefault(int(match[1]), set()).add(int(match[3]))
    agreed = {index: nodes.pop() for index, nodes in said.items() if len(nodes) == 1}
    unclear = [f"GPU{index}" for index in said if index not in agreed]
    gaps = [f"NUMA node of {', '.join(unclear)}: node and affinity disagree"] if unclear else []
    return {index: node for index, node in agreed.items() if node >= 0}, gaps


def without_links(matrix: Matrix) -> list[str]:
    if matrix.links or len(matrix.devices) < 2:
        return []
    return ["links: only peer access is shown, not over what" if matrix.p2p else "links: no matrix shows them"]


def capped_nics(lines: Iterable[str]) -> list[str]:
    caps = (match for line in lines if (match := NIC_CAP.search(line)))
    return [f"{int(match[1]) - int(match[2])} of {match[1]} NICs are not in the matrix" for match in caps]


def with_opacity(topology: HostTopology) -> HostTopology:
    """Say where a virtual machine shows one and the same path everywhere: its distances are unknown, not equal."""
    place = {device.name: device.cpus if device.numa is None else device.numa for device in topology.devices}
    paths = [link for link in topology.device_links if not is_direct(link.kind)]
    to_nics = [link for link in topology.links if (link.a in place) != (link.b in place)]
    told_apart = any(link.kind in ("PIX", "PXB", "PHB", "NODE") for link in to_nics)
    opaque = hides_paths(paths, place) and not (paths[0].kind == "SYS" and told_apart)
    opaque_nics = len({link.a for link in to_nics}) > 1 < len({link.b for link in to_nics}) and hides_paths(to_nics, {})
    gaps = list(topology.gaps)
    if opaque:
        gaps.append(
            f"every PCIe path is {paths[0].kind}: a virtual machine hides them, so distances are unknown, not equal"
        )
    if opaque_nics:
        gaps.append(f"every device-NIC path is {to_nics[0].kind}: which NIC is near which device is unknown")
    return replace(topology, gaps=tuple(gaps), opaque=opaque, opaque_nics=opaque_nics)


def hides_paths(paths: Sequence[Link], place: Mapping[str, int | str | None]) -> bool:
    """At least three paths, all PHB or all SYS, and the devices' places (NUMA node or CPUs) do not account for them."""
    kinds = {link.kind for link in paths}
    if len(paths) < 3 or kinds not in ({"PHB"}, {"SYS"}):
        return False
    places = [(place.get(link.a), place.get(link.b)) for link in paths]
    return kinds == {"PHB"} or not all(None not in (a, b) and a != b for a, b in places)
