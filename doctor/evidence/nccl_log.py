"""What NCCL and RCCL say at INFO level of a process: versions, addresses, adapters, transports, rings (2.4 to 2.30)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MAX_EDGES = 4_096  # of the network, per process: enough for 32 channels to 128 peers


@dataclass(frozen=True)
class NcclEdge:
    """One connection over the network. `receives` is None where the line does not say; `gdr`: GPUDirect RDMA."""

    source: int
    target: int
    receives: bool | None
    network: str
    nic: str
    gdr: bool
    text: str


@dataclass(frozen=True)
class NcclComm:
    """A communicator as its initialisation prints it."""

    identity: str
    rank: int
    size: int
    cuda_device: int | None = None
    bus: str | None = None
    complete: bool = False


@dataclass(frozen=True)
class NcclProcess:
    """What one process of a job said of itself. `where` is its first line; facts that it did not print are empty."""

    host: str | None
    pid: int | None
    device: int | None
    where: str
    rank: int | None = None
    version: str | None = None
    library: str = "NCCL"
    bootstrap: str | None = None
    network: str | None = None
    adapters: Sequence[str] = ()
    no_ib_device: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    transports: Mapping[str, int] = field(default_factory=dict)
    edges: Sequence[NcclEdge] = ()
    comms: Sequence[NcclComm] = ()
    rings: Sequence[Sequence[int]] = ()
    channels: str | None = None
    nvls: bool | None = None
    connected: bool = False
    calls: Mapping[str, tuple[int, str, int]] = field(default_factory=dict)
    calls_size: int | None = None

    @property
    def name(self) -> str:
        """The process for a person: its rank where known, else host and pid."""
        if self.rank is not None:
            return f"rank {self.rank}" + (f" on {self.host}" if self.host else "")
        return f"pid {self.pid} on {self.host}" if self.host else f"device [{self.device}]"


_VERSION = re.compile(r"\b(?P<library>[NR]CCL) version (?:: )?(?P<version>\d+\.\d+(?:\.\d+)?)(?P<build>\+\S+)?")
_BOOTSTRAP = re.compile(r"Bootstrap ?: ?Using (?:\[0\])?(?P<address>\S+:[^\s<]+)")
_USING_NETWORK = re.compile(
    r"(?:Using network|Assigned NET plugin|Initialized NET plugin) (?P<name>[\w ./+-]+?)(?: to comm.*)?\s*$"
)
_ADAPTERS = re.compile(r"NET/(?P<network>[\w+ .-]+?) ?: ?Using (?P<list>\[0\].*)")
_ADAPTER = re.compile(r"\[\d+\](?P<name>[\w.-]+)(?::\d+)?(?:/(?P<layer>\w+))?")
_SETTING = re.compile(r"\b(?P<name>(?:NCCL|RCCL|OFI_NCCL|FI)_\w+) set (?:by environment )?to (?P<value>[^\s]+?)\.?\s*$")
_COMM = re.compile(
    r"comm (?P<comm>0x[0-9a-f]+)(?: \S+)*? rank (?P<rank>\d+) n[rR]anks (?P<size>\d+)(?:.*?cudaDev (?P<device>\d+))?"
    r"(?:.*?busId (?P<bus>[0-9a-fA-F:.]+))?(?:.*?commId (?P<id>0x[0-9a-f]+))?.*?(?P<done>Init COMPLETE|Init START)?\s*$"
)
_EDGE = re.compile(
    r"(?P<source>\d+)(?:\[[0-9a-fA-F]+\])? -> (?P<target>\d+)(?:\[[0-9a-fA-F]+\])?(?: \[(?P<way>send|receive)\])? via "
    r"(?P<path>[\w/.() +-]+)"
)
_BARE_EDGE = re.compile(r"Channel (?P<channel>\d+)(?:/\d+)? -> (?P<path>NET/[\w/]+)")
_RING = re.compile(r"Channel \d+/\d+ ?: +(?P<ranks>\d+(?: +\d+)+)\s*$")
_CHANNELS = re.compile(r"\d+ coll channels, .*channels")
_CALL = re.compile(
    r"(?P<op>[A-Z]\w+): opCount (?P<count>[0-9a-f]+) .*?\bcount (?P<elements>\d+) .*?comm (?P<comm>0x[0-9a-f]+)"
    r" \[nranks=(?P<size>\d+)\]"
)


class ProcessFacts:
    """Builder of an NcclProcess: fed with the messages of one process."""

    def __init__(self, host: str | None, pid: int | None, device: int | None, rank: int | None, where: str) -> None:
        self.host, self.pid, self.device, self.rank, self.where = host, pid, device, rank, where
        self.values: dict[str, object] = {}
        self.settings: dict[str, str] = {}
        self.transports: Counter[str] = Counter()
        self.raw_transports: Counter[bytes] = Counter()
        self.edges: dict[tuple[int, int, bool | None, str], NcclEdge] = {}
        self.comms: dict[str, NcclComm] = {}
        self.rings: list[tuple[int, ...]] = []
        self.calls: dict[str, tuple[int, str, int]] = {}

    def take(self, text: str) -> None:
        """One message at INFO level."""
        for step in (self._versions, self._network, self._comm, self._edge, self._call):
            if step(text):
                return

    def _versions(self, text: str) -> bool:
        if found := _VERSION.search(text):
            self.values.update(version=found["version"], library=found["library"])
        elif found := _BOOTSTRAP.search(text):
            self.values.setdefault("bootstrap", found["address"])
        elif found := _SETTING.search(text):
            self.settings[found["name"]] = found["value"]
        elif "NVLS multicast support is" in text:
            self.values["nvls"] = "not available" not in text
        elif "Connected all rings" in text or "Connected all trees" in text:
            self.values["connected"] = True
        elif found := _CHANNELS.search(text):
            self.values["channels"] = found[0]
        else:
            return False
        return True

    def _network(self, text: str) -> bool:
        if "NET/IB" in text and "No device found" in text:
            self.values["no_ib_device"] = True
        elif found := _ADAPTERS.search(text):
            self.values["adapters"] = tuple(
                adapter["name"] for adapter in _ADAPTER.finditer(found["list"].split(";")[0])
            )
            self.values.setdefault("network", found["network"])
        elif found := _USING_NETWORK.search(text):
            self.values["network"] = found["name"]
        else:
            return False
        return True

    def _comm(self, text: str) -> bool:
        found = _COMM.search(text) if "comm 0x" in text else None
        if not found:
            return False
        identity = found["id"] or found["comm"]
        old = self.comms.get(identity)
        device = int(found["device"]) if found["device"] else None
        done = found["done"] == "Init COMPLETE" or bool(old and old.complete)
        if len(self.comms) < MAX_EDGES or old:
            bus = found["bus"] or (old.bus if old else None)
            self.comms[identity] = NcclComm(identity, int(found["rank"]), int(found["size"]), device, bus, done)
        return True

    def _edge(self, text: str) -> bool:
        if found := _EDGE.search(text):
            path = found["path"].strip()
            self.transports["NET" if path.startswith("NET/") else path] += 1
            if path.startswith("NET/"):
                way = None if not found["way"] else found["way"] == "receive"
                self._add_edge(int(found["source"]), int(found["target"]), way, path, text)
            return True
        bare = list(_BARE_EDGE.finditer(text))
        for one in bare:
            self.transports["NET"] += 1
            self._add_edge(-1, -1, None, one["path"], text)
        if ring := _RING.search(text):
            self.rings.append(tuple(int(rank) for rank in ring["ranks"].split()))
        return bool(bare or ring)

    def _add_edge(self, source: int, target: int, receives: bool | None, path: str, text: str) -> None:
        parts = path.split("/")
        network, nic = parts[1], re.sub(r"\(.*", "", parts[2]) if len(parts) > 2 else "?"
        key = (source, target, receives, nic)
        if len(self.edges) < MAX_EDGES and key not in self.edges:
            self.edges[key] = NcclEdge(source, target, receives, network, nic, "GDRDMA" in path, text.strip()[:200])

    def _call(self, text: str) -> bool:
        found = _CALL.search(text) if "opCount" in text else None
        if found:
            self.calls[found["comm"]] = (int(found["count"], 16), found["op"], int(found["elements"]))
            self.values["calls_size"] = int(found["size"])
        return bool(found)

    def record(self) -> NcclProcess:
        for path, count in self.raw_transports.items():
            self.transports[path.decode(errors="replace").strip()] += count
        world = max(self.comms.values(), key=lambda comm: comm.size, default=None)
        rank = self.rank if self.rank is not None else (world.rank if world else None)
        return NcclProcess(
            self.host,
            self.pid,
            self.device,
            self.where,
            rank,
            settings=dict(self.settings),
            transports=dict(self.transports),
            edges=tuple(self.edges.values()),
            comms=tuple(self.comms.values()),
            rings=tuple(self.rings),
            calls=dict(self.calls),
            **self.values,  # type: ignore[arg-type]
        )

    @property
    def said_something(self) -> bool:
        return bool(self.values or self.settings or self.transports or self.raw_transports or self.comms or self.calls)
