"""Outputs of node tools as evidence: GPUs, NVLink, InfiniBand, PCIe, DCGM, Fabric Manager, bandwidth tests, waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from doctor.evidence.source import Parser, Source, looks_like_text
from launcher.common.node_reports import (
    dcgm,
    dcgm_trees,
    fabric_manager,
    infiniband,
    nccl_tests,
    nvidia_smi,
    pci,
    processes,
)

ReportKind = Literal[
    "gpus", "gpu_matrix", "nvlink", "peer_access", "ib_ports", "ib_counters", "acs", "pci_links", "dcgm",
    "dcgm_links", "fabric_manager", "bandwidth", "waits", "gpu_use", "gpu_bandwidths", "gpu_peer_gains",
]  # fmt: skip


@dataclass(frozen=True)
class NodeReport:
    """What one tool printed on one node; the type of `value` follows from `kind` (see `_READERS`)."""

    kind: ReportKind
    where: str
    value: object


_Reader = tuple[ReportKind, str, Callable[[str], object]]


def _dcgm(text: str) -> object:
    return dcgm.parse_diag_json(text[text.index("{") :]) if '"test_categories"' in text else dcgm.parse_diag_text(text)


# (kind, what such a text holds, how it is read). A value that is empty is left out.
_READERS: tuple[_Reader, ...] = (
    (
        "gpus",
        r"NVSMI LOG|^\s*(?:Clocks (?:Event|Throttle) Reasons|ECC Errors|Remapped Rows|Retired Pages|Fabric)\s*$",
        nvidia_smi.parse_query,
    ),
    (
        "gpus",
        r"\A\s*(?:index|name|gpu_uuid|uuid|timestamp|pci\.bus_id|gpu_bus_id|driver_version)\b[\w. \[\]%]*,",
        nvidia_smi.parse_csv,
    ),
    ("gpu_use", r"^\|[^|\n]*\|\s*\d+MiB\s*/\s*\d+MiB\s*\|\s*\d+%", nvidia_smi.parse_utilization),
    ("gpu_bandwidths", r"^\s*D\\D\s+0\s+1\b", nvidia_smi.parse_bandwidths),
    ("gpu_peer_gains", r"^Unidirectional P2P=Enabled", nvidia_smi.parse_peer_gains),
    (
        "nvlink",
        (
            r"^\s*Link \d+: (?:[\d.]+ GB/s|<?inactive|Replay Errors|Recovery Errors|CRC \w+ ?Errors)|all links are"
            r" in[Aa]ctive"
        ),
        nvidia_smi.parse_nvlink,
    ),
    ("gpu_matrix", r"^\s*GPU\d+\s.*\bNV\d+\b", nvidia_smi.parse_matrix),
    ("peer_access", r"CNS\s+= Chipset not supported|^\s*GPU\d+\s+(?:X|OK|GNS|CNS|TNS|NS|DR)\s", nvidia_smi.parse_p2p),
    ("ib_ports", r"^\s*(?:CA|iWARP RNIC):? '", infiniband.parse_ibstat),
    ("ib_ports", r"^\s*Infiniband device '", infiniband.parse_ibstatus),
    ("ib_ports", r"^\s*hca_id:", infiniband.parse_devinfo),
    (
        "ib_counters",
        r"infiniband/[^/\s]+/ports/\d+/(?:hw_)?counters/|\b(?:SymbolErrorCounter|LinkDownedCounter|local_ack_timeout_err"
        r"|packet_seq_err|out_of_sequence|rx_discards_phy|symbol_error|link_downed)\b[\s:=.]+\d",
        infiniband.parse_counters,
    ),
    ("acs", r"ACSCtl:", pci.parse_acs),
    ("pci_links", r"LnkSta:\s+Speed", pci.parse_links),
    (
        "dcgm",
        r'"test_categories"|^[\s#>]*\| Diagnostic\s+\| Result|^[^|\n]*\|[^|\n]+\| (?:Pass|Fail|Warn) - GPU',
        _dcgm,
    ),
    ("dcgm", r"^[^|\n]*\| Health Monitor Report\s|\"Health Monitor Report\"", dcgm_trees.parse_health),
    ("nvlink", r"^[^|\n]*\| NVLINK Error Counts\s|\"NVLINK Error Counts\"", dcgm_trees.parse_nvlink_errors),
    ("dcgm_links", r"NvLink Link Status", dcgm.parse_link_status),
    (
        "fabric_manager",
        r"^\[[A-Z][a-z]{2} \d\d \d{4} [\d:]{8}\] \[\w+\] \[tid \d+\]|\bnv-fabricmanager\[\d+\]: ",
        lambda text: fabric_manager.parse_fabric_manager(text.splitlines()),
    ),
    ("bandwidth", r"\(B\)\s+\(elements\)|Avg bus bandwidth", nccl_tests.parse_tables),
    ("waits", r"^\s*\[<(?:0|[0-9a-f]{8,16})>\]\s+\w+\+0x", processes.parse_stack),
    (
        "waits",
        r"^\s*\d+\s+[DSRTtZI]\S*\s+(?:0|-|[a-z_][\w.]+)\s*$|^(?=.*\bPID\b).*\bSTAT\b.*\bWCHAN\b",
        processes.parse_wchan_table,
    ),
)
_COMPILED = [(kind, re.compile(mark, re.MULTILINE), read) for kind, mark, read in _READERS]


def sniff(sample: bytes, name: str) -> float:
    """0.9: a job's log may begin with the output of a tool, so the readers of logs look too."""
    if not looks_like_text(sample):
        return 0.0
    text = sample.decode(errors="replace")
    return 0.9 if any(mark.search(text) for _, mark, _ in _COMPILED) else 0.0


def read_reports(text: str, where: str) -> Iterator[NodeReport]:
    """All reports that a text holds. Raises ValueError where a document is cut off."""
    for kind, mark, read in _COMPILED:
        if mark.search(text) and (value := read(text)):
            yield NodeReport(kind, where, value)


def parse(source: Source) -> Iterator[object]:
    yield from read_reports(source.text(), source.name)


PARSERS = (Parser("node report", sniff, parse),)
