"""An NCCL log in words: what each important line says and what that means. Pure: evidence → statements."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from doctor.evidence import EvidenceSet
from doctor.evidence.logs import LogFile
from doctor.evidence.nccl_log import NcclProcess
from doctor.text import fold_hosts, name_ranks, plural

TRANSPORTS: Sequence[tuple[str, str]] = (
    ("P2P/CUMEM", "directly over NVLink or PCIe, memory shared by cuMem: the fast way inside a node"),
    ("P2P/IPC", "directly over NVLink or PCIe, memory shared by CUDA IPC: the fast way inside a node"),
    ("P2P/direct", "directly, inside one process: the fast way inside a node"),
    ("P2P/indirect", "through another GPU, since the two have no link of their own"),
    ("P2P", "directly over NVLink or PCIe"),
    ("SHM", "through host memory: the devices do not reach each other by P2P, several times slower than NVLink"),
    ("NVLS", "by multicast in the NVSwitch (NVLink SHARP)"),
    ("COLLNET", "reduced in the network's switches (SHARP)"),
)


@dataclass(frozen=True)
class Statement:
    """`what` the log says, what it `means`, and where it stands."""

    topic: str
    what: str
    means: str
    where: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def explain(evidence: EvidenceSet) -> list[Statement]:
    """Statements in the order in which one reads a log: who speaks, over what, in which shape."""
    processes = evidence.of(NcclProcess)
    parts: Sequence[Callable[[Sequence[NcclProcess]], Iterator[Statement]]] = (
        _versions,
        _speakers,
        _bootstrap,
        _networks,
        _adapters,
        _gpudirect,
        _communicators,
        _rings,
        _multicast,
        _settings,
    )
    found = [statement for part in parts for statement in part(processes)] if processes else []
    return found + list(_inside(evidence.of(LogFile)))


def _by(processes: Sequence[NcclProcess], value: Callable[[NcclProcess], object]) -> Mapping[Any, list[NcclProcess]]:
    groups: defaultdict[object, list[NcclProcess]] = defaultdict(list)
    for process in processes:
        if (found := value(process)) not in (None, (), "", {}):
            groups[found].append(process)
    return dict(sorted(groups.items(), key=lambda item: str(item[0])))


def _of(processes: Sequence[NcclProcess]) -> str:
    ranks = {one.rank for one in processes if one.rank is not None}
    hosts = {one.host for one in processes if one.host}
    return name_ranks(ranks) if ranks else fold_hosts(hosts) if hosts else plural(len(processes), "process")


def _versions(processes: Sequence[NcclProcess]) -> Iterator[Statement]:
    groups = _by(processes, lambda one: f"{one.library} {one.version}" if one.version else None)
    for version, found in groups.items():
        means = "one version everywhere" if len(groups) == 1 else "versions differ: all ranks must run the same one"
        yield Statement("version", f"{version} ({_of(found)})", means, found[0].where)


def _speakers(processes: Sequence[NcclProcess]) -> Iterator[Statement]:
    hosts = {one.host for one in processes if one.host}
    size = max((comm.size for one in processes for comm in one.comms), default=0)
    means = f"the largest communicator has {size} ranks" if size else "no communicator was initialised in this log"
    if 0 < len(processes) < size:
        means += f"; {size - len(processes)} of them do not speak here"
    yield Statement("processes", f"{len(processes)} on {plural(len(hosts), 'host')} ({fold_hosts(hosts)})", means)


def _bootstrap(processes: Sequence[NcclProcess]) -> Iterator[Statement]:
    for interface, found in _by(processes, lambda one: (one.bootstrap or "").partition(":")[0]).items():
        loop = interface == "lo"
        means = (
            "loopback: only ranks of the same host are reached"
            if loop
            else "start-up and control traffic, not the data"
        )
        yield Statement("bootstrap", f"interface {interface} ({_of(found)})", means, found[0].where)


def _networks(processes: Sequence[NcclProcess]) -> Iterator[Statement]:
    for network, found in _by(processes, lambda one: one.network).items():
        plain = network.startswith("Socket")
        means = (
            "TCP sockets: far slower than the adapters' own verbs" if plain else "data goes by the adapters' own verbs"
        )
        yield Statement("network", f"{network} ({_of(found)})", means, found[0].where)


def _adapters(processes: Sequence[NcclProcess]) -> Iterator[Statement]:
    for adapters, found in _by(processes, lambda one: tuple(one.adapters)).items():
        yield Statement(
            "adapters",
            f"{', '.join(adapters)} ({_of(found)})",
            f"{len(adapters)} rails to the other nodes",
            found[0].where,
        )


def _gpudirect(processes: Sequence[NcclProcess]) -> Iterator[Statement]:
    edges = [edge for process in processes for edge in process.edges if edge.network != "Socket"]
    if not edges:
        return
    direct = sum(edge.gdr for edge in edges)
    nics = Counter(edge.nic for edge in edges)
    spread = ", ".join(f"NIC {nic}: {count}" for nic, count in sorted(nics.items()))
    if direct == len(edges):
        means = "adapters read and write GPU memory themselves (GPUDirect RDMA)"
    elif direct:
        means = "only some connections use GPUDirect RDMA: senders before Ampere never do, receivers should"
    else:
        means = "no GPUDirect RDMA: data takes the detour over host memory"
    yield Statement("network connections", f"{len(edges)}, {direct} with GDRDMA ({spread})", means, processes[0].where)


def _communicators(processes: Sequence[NcclProcess]) -> Iterator[Statement]:
    comms = [(process, comm) for process in processes for comm in process.comms]
    if not comms:
        return
    sizes = Counter(comm.size for _, comm in {comm.identity: (process, comm) for process, comm in comms}.values())
    listed = ", ".join(f"{count} of {plural(size, 'rank')}" for size, count in sorted(sizes.items(), reverse=True))
    open_ = [(process, comm) for process, comm in comms if not comm.complete]
    means = (
        f"{len(open_)} initialisations did not complete ({_of([process for process, _ in open_])}): they wait for ranks"
        " that did not come"
        if open_
        else "all initialisations completed"
    )
    yield Statement("communicators", listed, means, comms[0][0].where)


def _rings(processes: Sequence[NcclProcess]) -> Iterator[Statement]:
    with_rings = [one for one in processes if one.rings]
    if with_rings:
        first = with_rings[0]
        ring = " → ".join(map(str, first.rings[0][:16])) + (" → …" if len(first.rings[0]) > 16 else "")
        means = "each rank sends to its right neighbour; ranks of one node should stand side by side"
        yield Statement("rings", f"{len(first.rings)} channels; the first: {ring}", means, first.where)
    for channels, found in _by(processes, lambda one: one.channels).items():
        yield Statement(
            "channels",
            f"{channels} ({_of(found)})",
            "more channels use more links and more of the GPU's SMs",
            found[0].where,
        )


def _multicast(processes: Sequence[NcclProcess]) -> Iterator[Statement]:
    for there, found in _by(processes, lambda one: None if one.nvls is None else str(one.nvls)).items():
        means = "all-reduce may use the NVSwitch's own arithmetic" if there == "True" else "rings and trees only"
        yield Statement(
            "NVLS", f"multicast {'is' if there == 'True' else 'is not'} there ({_of(found)})", means, found[0].where
        )


def _settings(processes: Sequence[NcclProcess]) -> Iterator[Statement]:
    names = sorted({name for process in processes for name in process.settings})
    speakers = [process for process in processes if process.settings]
    for name in names:
        values = sorted({process.settings.get(name, "not set") for process in speakers})
        means = "the same on all that printed settings" if len(values) == 1 else "differs between processes"
        yield Statement("setting", f"{name} = {' | '.join(values)}", means, speakers[0].where)


def _inside(files: Sequence[LogFile]) -> Iterator[Statement]:
    totals: Counter[str] = Counter()
    for file in files:
        totals.update(file.paths)
    for path, count in totals.most_common():
        means = next((words for start, words in TRANSPORTS if path.startswith(start)), "a transport inside the node")
        yield Statement("inside nodes", f"{count:,} connections via {path}", means)
