"""What NCCL and RCCL say at INFO level of a process: versions, addresses, adapters, transports, rings (2.4 to 2.30)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

MAX_EDGES = 4_096  # of the network, per process: enough for 32 channels to 128 peers
MAX_SEEN = 4_096  # different messages of one process that are remembered to pass over their repeats
# First words of messages that come by the thousand and carry nothing that another line does not.
_PLENTY = frozenset(
    (
        "Trees",
        "Tree ",
        "thres",
        "Setti",
        "P2P C",
        "Intra",
        "Patte",
        " 0 : ",
        "Alloc",
        "Mem A",
    )
)
# First words of lines about calls (NCCL_DEBUG_SUBSYS=COLL).
_CALLS = frozenset(("AllRe", "AllGa", "AllTo", "Broad", "Gathe", "Recv:", "Reduc", "Scatt", "Send:"))
_CONNECTIONS = frozenset(("Chann", "Ring "))  # connections; up to 2.4 they are said of rings
_INITS = frozenset(("comm ", "ncclC"))


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
    pointer: str = ""  # as lines about calls name it


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
_EDGE = re.compile(
    r"(?P<source>\d+)(?:\[[0-9a-fA-F]+\])? -> (?P<target>\d+)(?:\[[0-9a-fA-F]+\])?(?: \[(?P<way>send|receive)\])? via "
    r"(?P<path>[\w/.() +-]+)"
)
_BARE_EDGE = re.compile(r"Channel (?P<channel>\d+)(?:/\d+)? -> (?P<path>NET/[\w/]+)")
_RING = re.compile(r"Channel \d+/\d+ ?: +(?P<ranks>\d+(?: +\d+)+)\s*$")
_CHANNELS = re.compile(r"\d+ coll channels, .*channels")
_CALL = re.compile(
    r"(?P<op>[A-Z]\w+): opCount (?P<count>[0-9a-f]+) .*?\bcount (?P<elements>\d+) .*?comm (?P<comm>0x[0-9a-f]+)"
    r" \[nranks="
)


class ProcessFacts:
    """Builder of an NcclProcess: fed with the messages of one process."""

    def __init__(self, host: str | None, pid: int | None, device: int | None, rank: int | None, where: str) -> None:
        self.host, self.pid, self.device, self.rank, self.where = host, pid, device, rank, where
        self.values: dict[str, object] = {}
        self.settings: dict[str, str] = {}
        self.transports: Counter[str] = Counter()
        self.raw_paths: dict[str, int] = {}  # what follows the channel's number in lines of connections
        self.raw_calls: dict[str, str] = {}  # communicator → its last call
        self.seen: set[str] = set()
        self.edges: dict[tuple[int, int, bool | None, str], NcclEdge] = {}
        self.comms: dict[str, NcclComm] = {}
        self.rings: list[tuple[int, ...]] = []
        self.calls: dict[str, tuple[int, str, int]] = {}

    def passes_over(self, message: str) -> bool:
        """Whether this message of INFO level needs no closer look: it is counted here, a repeat, or one of plenty."""
        head = message[:5]
        if head in _CONNECTIONS:
            channel, via, path = message.partition(" via ")
            if via and path[:3] == "NET":
                key = channel.partition(": ")[2] + via + path
                if key in self.raw_paths:
                    self.raw_paths[key] += 1
                elif len(self.raw_paths) < MAX_EDGES:
                    self.raw_paths[key] = 1
                return True
            if head == "Ring ":
                return True
        elif head in _PLENTY:
            return True
        elif head in _CALLS:
            self.raw_calls[message.partition(" comm ")[2][:18]] = message
            return True
        elif head in _INITS and self._comm(message):
            return True
        if message in self.seen:
            return True
        if len(self.seen) < MAX_SEEN:
            self.seen.add(message)
        return False

    def take(self, text: str) -> None:
        """One message at INFO level."""
        for step in (self._versions, self._network, self._comm, self._edge, self._call):
            if step(text):
                return

    def _versions(self, text: str) -> bool:
        if "CCL version" in text and (found := _VERSION.search(text)):
            self.values.update(version=found["version"], library=found["library"])
        elif "Bootstrap" in text and (found := _BOOTSTRAP.search(text)):
            self.values.setdefault("bootstrap", found["address"])
        elif " set " in text and (found := _SETTING.search(text)):
            self.settings[found["name"]] = found["value"]
        elif "NVLS multicast support is" in text:
            self.values["nvls"] = "not available" not in text
        elif "Connected all rings" in text or "Connected all trees" in text:
            self.values["connected"] = True
        elif "coll channels" in text and (found := _CHANNELS.search(text)):
            self.values["channels"] = found[0]
        else:
            return False
        return True

    def _network(self, text: str) -> bool:
        if "NET/IB" in text and "No device found" in text:
            self.values["no_ib_device"] = True
        elif "NET/" in text and (found := _ADAPTERS.search(text)):
            self.values["adapters"] = tuple(
                adapter["name"] for adapter in _ADAPTER.finditer(found["list"].split(";")[0])
            )
            self.values.setdefault("network", found["network"])
        elif ("network" in text or "plugin" in text) and (found := _USING_NETWORK.search(text)):
            self.values["network"] = found["name"]
        else:
            return False
        return True

    def _comm(self, text: str) -> bool:
        """`comm 0x… rank 3 nranks 8 cudaDev 3 busId 5000 commId 0x… - Init COMPLETE`: names, each with its value."""
        words = text.split()
        told = dict(pairwise(words))
        rank, size = told.get("rank", ""), told.get("nranks") or told.get("nRanks") or ""
        if not (rank.isdigit() and size.isdigit() and "comm" in told):
            return False
        identity = told.get("commId", told["comm"])
        old = self.comms.get(identity)
        if old or len(self.comms) < MAX_EDGES:
            device = told.get("cudaDev", "")
            self.comms[identity] = NcclComm(
                identity,
                int(rank),
                int(size),
                int(device) if device.isdigit() else None,
                told.get("busId") or (old.bus if old else None),
                "COMPLETE" in words or bool(old and old.complete),
                told["comm"],
            )
        return True

    def _edge(self, text: str) -> bool:
        if " via " in text and (found := _EDGE.search(text)):
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
        return bool(found)

    def record(self) -> NcclProcess:
        for path, count in self.raw_paths.items():
            self._edge(path.strip())
            self.transports["NET"] += count - 1
        for call in self.raw_calls.values():
            self._call(call)
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
        return bool(
            self.values
            or self.settings
            or self.transports
            or self.raw_paths
            or self.comms
            or self.calls
            or self.raw_calls
        )
