"""nvidia-smi in its forms: `-q`, `--query-*` CSV, `nvlink -s` / `-e`, `topo -p2p`, the table, `dmon`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MISSING = {"", "N/A", "[N/A]", "[Not Supported]", "Not Supported", "[Unknown Error]", "-"}
_GPU_LINE = re.compile(r"GPU (?:\d+: |)(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)\s*$")


def value_or_none(text: str) -> str | None:
    """The value without padding; None where the tool says that it has none ("N/A", "[N/A]", "[Not Supported]")."""
    stripped = text.strip()
    return None if stripped in _MISSING else stripped


def number(text: str | None) -> float | None:
    """The number at the start of a value ("32362 MiB", "627.40 W"); None without one."""
    match = re.match(r"-?\d+(?:\.\d+)?", text.strip()) if text else None
    return float(match[0]) if match else None


@dataclass(frozen=True)
class GpuReport:
    """One GPU of `nvidia-smi -q`: `values` by path of keys, e.g. "ECC Errors/Volatile/DRAM Correctable"."""

    bus: str | None
    values: Mapping[str, str] = field(default_factory=dict)

    def get(self, *keys: str) -> str | None:
        """Value of the first path that ends in one of `keys` and has a value."""
        for key in keys:
            for path, value in self.values.items():
                if (path == key or path.endswith("/" + key)) and value_or_none(value):
                    return value
        return None

    def count(self, *keys: str) -> int | None:
        found = number(self.get(*keys))
        return None if found is None else int(found)


@dataclass(frozen=True)
class SmiReport:
    """`nvidia-smi -q`, whole or a part of it."""

    driver: str | None
    cuda: str | None
    attached: int | None
    gpus: Sequence[GpuReport]


def parse_query(text: str) -> SmiReport:
    """Indentation gives the path of a key; nested lines without a GPU above them belong to one unnamed GPU."""
    head: dict[str, str] = {}
    gpus: list[tuple[str | None, dict[str, str]]] = []
    current = head
    stack: list[tuple[int, str]] = []
    for line in text.splitlines():
        if gpu := _GPU_LINE.match(line.strip()):
            current, stack = {}, []
            gpus.append((gpu["bus"], current))
            continue
        if not line.strip() or line.lstrip().startswith(("=", "[")):
            continue
        key, colon, value = line.partition(" : ")
        indent = len(line) - len(line.lstrip())
        while stack and stack[-1][0] >= indent:
            stack.pop()
        path = "/".join([name for _, name in stack] + [key.strip()])
        if colon:
            current.setdefault(path, value.strip())
        else:
            stack.append((indent, line.strip()))
    parts = {path: value for path, value in head.items() if "/" in path}
    if not gpus and parts:
        gpus.append((None, parts))
    attached = number(head.get("Attached GPUs"))
    return SmiReport(
        value_or_none(head.get("Driver Version", "")),
        value_or_none(head.get("CUDA Version", "")),
        None if attached is None else int(attached),
        tuple(GpuReport(bus, values) for bus, values in gpus),
    )


@dataclass(frozen=True)
class CsvTable:
    """`--query-gpu=… --format=csv`: column names without their unit in brackets; cells as printed."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, str]]

    def value(self, row: int, column: str) -> str | None:
        return value_or_none(self.rows[row].get(column, ""))

    @property
    def missing_cells(self) -> int:
        """How many cells say that there is no value; blank ones say nothing."""
        return sum(cell != "" and value_or_none(cell) is None for row in self.rows for cell in row.values())


def is_csv(text: str) -> bool:
    head = text.lstrip().split("\n", 1)[0]
    return (
        head.count(",") >= 1
        and re.search(r"\b(?:gpu_uuid|uuid|pci\.|driver_version|memory\.used|utilization\.gpu|index|pstate)", head)
        is not None
    )


def parse_csv(text: str) -> CsvTable:
    lines = [row for row in csv.reader(io.StringIO(text.strip()), skipinitialspace=True) if row]
    columns = tuple(re.sub(r"\s*\[[^\]]*\]$", "", name.strip()) for name in lines[0]) if lines else ()
    return CsvTable(
        columns, tuple(dict(zip(columns, (cell.strip() for cell in row), strict=False)) for row in lines[1:])
    )


@dataclass(frozen=True)
class NvLinks:
    """Links of one GPU: speed in GB/s of those that are up, inactive ones, error counters by (link, name)."""

    gpu: int
    name: str
    speed: Mapping[int, float] = field(default_factory=dict)
    inactive: Sequence[int] = ()
    errors: Mapping[tuple[int, str], int] = field(default_factory=dict)
    not_available: bool = False
    all_inactive: bool = False


_NVLINK_GPU = re.compile(r"\s*GPU (\d+): (.+?)(?: \(UUID: ([^)]*)\))?\s*$")
_NVLINK_SPEED = re.compile(r"\s*Link (\d+): (?:(\d+(?:\.\d+)?) GB/s|<?inactive>?)\s*$")
_NVLINK_ERROR = re.compile(r"\s*Link (\d+)[:,] ([\w ]+): (\d+|N/A)\s*$")


def parse_nvlink(text: str) -> list[NvLinks]:
    """`nvidia-smi nvlink -s` and `-e`, one record a GPU."""
    blocks: list[tuple[int, str, list[str]]] = []
    for line in text.splitlines():
        if head := _NVLINK_GPU.match(line):
            blocks.append((int(head[1]), head[2], []))
        elif blocks:
            blocks[-1][2].append(line)
    return [_links(*block) for block in blocks]


def _links(gpu: int, name: str, lines: Sequence[str]) -> NvLinks:
    speeds = [match for line in lines if (match := _NVLINK_SPEED.match(line))]
    errors = [match for line in lines if (match := _NVLINK_ERROR.match(line))]
    return NvLinks(
        gpu,
        name,
        {int(match[1]): float(match[2]) for match in speeds if match[2]},
        tuple(int(match[1]) for match in speeds if not match[2]),
        {(int(match[1]), match[2]): int(match[3]) for match in errors if match[3] != "N/A"},
        bool(errors) and all(match[3] == "N/A" for match in errors),
        any("all links are inactive" in line.lower() for line in lines),
    )


def parse_p2p(text: str) -> dict[tuple[str, str], str]:
    """`topo -p2p` matrix: (GPU, GPU) → code (OK, CNS, GNS, TNS, NS, DR, U); the diagonal is left out."""
    rows = [line.split() for line in _ANSI.sub("", text).splitlines()]
    header: list[str] = next((row for row in rows if row and all(re.fullmatch(r"GPU\d+", cell) for cell in row)), [])
    pairs: dict[tuple[str, str], str] = {}
    for row in rows:
        if len(row) == len(header) + 1 and re.fullmatch(r"GPU\d+", row[0]):
            pairs.update({(row[0], other): code for other, code in zip(header, row[1:], strict=True) if code != "X"})
    return pairs


def parse_matrix(text: str) -> dict[tuple[str, str], str]:
    """`topo -m` among GPUs: (GPU, GPU) → connection (NV18, PIX, SYS); NICs and affinities are left out."""
    rows = [line.split() for line in _ANSI.sub("", text).splitlines()]
    header = next((row for row in rows if len(row) > 1 and row[:2] == ["GPU0", "GPU1"]), [])
    others = [cell for cell in header if re.fullmatch(r"GPU\d+", cell)]
    pairs: dict[tuple[str, str], str] = {}
    for row in rows:
        if row and row[0] in others and len(row) > len(others) and row is not header:
            pairs.update({(row[0], other): kind for other, kind in zip(others, row[1:], strict=False) if kind != "X"})
    return pairs


def parse_utilization(text: str) -> dict[int, tuple[int, int]]:
    """Default table: GPU index → (utilization in per cent, memory in use in MiB)."""
    found: dict[int, tuple[int, int]] = {}
    index: int | None = None
    for line in text.splitlines():
        if head := re.match(r"\|\s+(\d+)\s+\S.*\s(?:On|Off|N/A)\s+\|\s*[0-9A-Fa-f]+:", line):
            index = int(head[1])
        elif index is not None and (use := re.search(r"\|\s*(\d+)MiB\s*/\s*\d+MiB\s*\|\s*(\d+)%", line)):
            found[index], index = (int(use[2]), int(use[1])), None
    return found


def parse_bandwidths(text: str) -> dict[tuple[int, int], float]:
    """p2pBandwidthLatencyTest: (GPU, GPU) → GB/s, of the bidirectional matrix with P2P, else of the last one."""
    found = _bandwidth_matrices(text)
    best = [title for title in found if title.startswith("Bidirectional P2P=Enabled")] or list(found)
    return found[best[-1]] if best else {}


def parse_peer_gains(text: str) -> dict[tuple[int, int], tuple[float, float]]:
    """p2pBandwidthLatencyTest: (GPU, other GPU) → GB/s without and with P2P, in one direction."""
    found = {title.partition(" Bandwidth")[0]: matrix for title, matrix in _bandwidth_matrices(text).items()}
    without, with_p2p = (found.get(f"Unidirectional P2P={state}", {}) for state in ("Disabled", "Enabled"))
    return {pair: (without[pair], rate) for pair, rate in with_p2p.items() if pair[0] != pair[1] and pair in without}


def _bandwidth_matrices(text: str) -> dict[str, dict[tuple[int, int], float]]:
    """Title of each matrix → (GPU, GPU) → GB/s."""
    found: dict[str, dict[tuple[int, int], float]] = {}
    title = ""
    for line in text.splitlines():
        words = line.split()
        if "Matrix" in line:
            title = line if "Bandwidth" in line else ""
        elif title and len(words) > 2 and all(re.fullmatch(r"\d+(?:\.\d+)?", word) for word in words):
            row = {(int(words[0]), column): float(value) for column, value in enumerate(words[1:])}
            found.setdefault(title, {}).update(row)
    return found
