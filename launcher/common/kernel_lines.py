"""Kernel messages (dmesg in all its styles, /dev/kmsg, journal, pstore) → KernelEvent. Standard library, pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from launcher.common.xids import sub_code

_STAMPS = (
    r"<\d+>\s*",  # pstore, kmsg level
    r"\d+,\d+,\d+,[^;]*;",  # /dev/kmsg: priority,sequence,microseconds,flags;
    r"(?:kern|user|daemon|syslog)\s*:\s*\w+\s*:\s*",  # dmesg --decode
    r"\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\s+",
    r"\[[^\]]*\d{1,2}:\d\d:\d\d[^\]]*\]\s*",  # dmesg -T
    r"\[\s*\d+\.\d+\]\s*",
    r"[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d (?:(?P<host>[\w.-]+) )?kernel: ",
)
_STAMP = re.compile("|".join(f"(?:{stamp})" for stamp in _STAMPS))


@dataclass(frozen=True)
class KernelEvent:
    """One message that matters. `kind` is the name of its pattern in PATTERNS; `line` counts from 1."""

    kind: str
    line: int
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)
    host: str | None = None

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name) or ""

    @property
    def xid(self) -> int | None:
        return int(self["xid"]) if self.kind == "xid" else None

    @property
    def sub_code(self) -> int | None:
        """Sub-code of an Xid that carries one (144-150)."""
        word = re.search(r"\(0x([0-9a-f]{8})\b", self.text) if self.kind == "xid" else None
        return sub_code(int(self["xid"]), int(word[1], 16)) if word else None


_BUS = r"(?P<bus>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"
_FUNCTION = r"(?P<bus>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
# Each pattern has a word that its lines contain: most lines are passed over by that alone.
_TABLE: tuple[tuple[str, str, str], ...] = (
    (
        "xid",
        "Xid (",
        r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<xid>\d+)(?:, pid='?(?P<pid>\d+|<[^>]*>)'?)?"
        r"(?:, name=(?P<name>[^,]*))?,?\s*(?P<what>.*)",
    ),
    ("sxid", "SXid (", r"SXid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<xid>\d+),\s*(?P<what>.*)"),
    (
        "fallen_off",
        "fallen off the bus",
        rf"(?:{_BUS}.*)?fallen off the bus",
    ),
    (
        "amdgpu_error",
        "amdgpu",
        r"amdgpu (?P<bus>[0-9a-f:.]+): .*(?P<what>uncorrectable hardware error|ring \S+ timeout|GPU reset|GPU fault"
        r"|poison|page fault).*",
    ),
    (
        "amdgpu_error",
        "amdgpu_job_timedout",
        r"amdgpu_job_timedout.*?(?P<what>ring \S+ timeout)",
    ),
    ("oom_killed", "ill", r"(?:Killed|Kill|reaped) process (?P<pid>\d+)[^(]*\((?P<name>[^)]*)\)"),
    ("oom_invoked", "oom-killer", r"(?P<name>\S+) invoked oom-killer"),
    ("oom_detail", "oom-kill:", r"oom-kill:(?:.*\btask=(?P<name>[^,]+),pid=(?P<pid>\d+))?"),
    (
        "hung_task",
        "blocked for more than",
        r"task (?P<name>.+?):(?P<pid>\d+) blocked for more than (?P<seconds>\d+) seconds",
    ),
    (
        "soft_lockup",
        "lockup",
        r"(?:soft|hard) lockup(?:.*stuck for (?P<seconds>\d+)s)?(?:.*\[(?P<name>[^\]]+):(?P<pid>\d+)\])?",
    ),
    ("soft_lockup", "LOCKUP", r"hard LOCKUP on cpu \d+"),
    ("soft_lockup", "rcu: INFO", r"rcu_\w+ (?:self-detected stall|detected (?:expedited )?stalls)"),
    (
        "segfault",
        "traps:",
        r"traps: (?P<name>\S+)\[(?P<pid>\d+)\]:? (?:general protection|trap \w+).* error:\w+"
        r"(?: in (?P<library>[^\[\s]+))?",
    ),
    (
        "segfault",
        "segfault at",
        r"(?P<name>\S+)\[(?P<pid>\d+)\]: segfault at \S+ ip \S+ sp \S+ error \d+(?: in (?P<library>[^\[\s]+))?",
    ),
    (
        "aer",
        "PCIe Bus Error",
        r"(?P<port>[0-9a-f]{4}:[0-9a-f:.]+): (?:AER: )?PCIe Bus Error: severity=(?P<severity>[^,]+), "
        r"type=(?P<type>[^,]+)",
    ),
    ("pcie_link_down", "Link Down", rf"{_FUNCTION.replace('<bus>', '<port>')}.*Slot\([^)]*\): Link Down"),
    ("pcie_link_down", "DPC: ", rf"{_FUNCTION.replace('<bus>', '<port>')}: DPC: containment event"),
    (
        "edac",
        "EDAC",
        r"EDAC (?:\S+ )?(?P<controller>MC\d+): (?P<count>\d+) (?P<class>CE|UE) .*?\bon (?P<dimm>\S+)",
    ),
    (
        "mce_fatal",
        "Machine Check",
        r"(?:Fatal [Mm]achine [Cc]heck|Machine Check Exception)",
    ),
    ("mce_fatal", "Machine check", r"Machine check: Processor context corrupt"),
    ("mce_fatal", "machine check", r"Fatal (?:local )?machine check"),
    ("mce_fatal", "Fatal hardware", r"not syncing: Fatal hardware error"),
    (
        "iommu_fault",
        "fault",
        r"(?:DMAR: (?!.*[Dd]river)(?:.*?\bdevice \[(?P<bus>[0-9a-f:.]+)\])?|arm-smmu).*fault",
    ),
    ("iommu_fault", "IO_PAGE_FAULT device=", r"IO_PAGE_FAULT device=(?P<bus>[0-9a-f:.]+)"),
    ("iommu_fault", "IO_PAGE_FAULT", r"(?:(?P<bus>[0-9a-f]{4}:[0-9a-f:.]+): )?AMD-Vi: .*IO_PAGE_FAULT"),
    ("peermem", "nvidia-peermem", r"nvidia-peermem .*ERROR (?P<what>.*)"),
    ("nvswitch", "nvidia-nvswitch", r"nvidia-nvswitch\d+: .*?(?P<what>(?:[Ff]atal|error|ERROR).*)"),
    (
        "ib_command",
        "Failed to process command",
        r"infiniband (?P<device>\S+?): Failed to process command (?P<command>\S+).*?err (?P<errno>-?\d+)",
    ),
    (
        "ib_resource",
        "infiniband",
        r"infiniband (?P<device>\S+?): Failed to (?:allocate|create) (?P<what>\w+)\s?\[(?P<errno>-?\d+)\]",
    ),
    (
        "mlx5_health",
        "mlx5_core",
        rf"mlx5_core {_FUNCTION}.*?(?P<what>health compromised|Health issue|bad device|assert_var|"
        r"module .* unplugged|Cable error|[Hh]igh temperature|insufficient power|command.*timeout|"
        r"[Ll]ink (?:down|DOWN)|poll_health|\w+\(0x[0-9a-f]+\) timeout|failed to allocate command entry).*",
    ),
    ("nfs_stall", "not responding", r"nfs: server (?P<server>\S+) not responding"),
    (
        "fs_error",
        "rror",
        r"(?P<what>(?:EXT4-fs error|XFS .*(?:error|shutdown)|Buffer I/O error|I/O error, dev|LustreError).*)",
    ),
    ("fs_error", "nvme nvme", r"(?P<what>nvme nvme\d+: (?:I/O .*timeout|controller is down).*)"),
    ("thermal", "hrottl", r"(?P<what>(?:cpu clock throttled|temperature above threshold).*)"),
    ("nvrm_init_failed", "RmInitAdapter", rf"NVRM: .*{_FUNCTION}.*RmInitAdapter failed"),
)
PATTERNS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple((k, word, re.compile(p)) for k, word, p in _TABLE)
_WORDS = sorted({word for _, word, _ in PATTERNS})
_PREFILTER = re.compile("|".join(map(re.escape, _WORDS)))
# Words of the lines that `parse_kernel` needs, for those who pass over the others unread.
KERNEL_MARKS = tuple(word.encode() for word in (*_WORDS, "AER", "error status/mask", "pcieport", "The NVIDIA GPU "))
KERNEL_WORDS = re.compile(b"|".join(map(re.escape, KERNEL_MARKS)))
_SUBJECT = re.compile(rf"NVRM: The NVIDIA GPU {_BUS}")  # goes on below
_BIT = re.compile(r"^\S+ \S+:\s+(?:AER:\s+)?\[\s*(?P<bit>\d+)\]\s*(?P<name>.*?)\s*(?:\(First\)\s*)?$")
_HARMLESS = re.compile(
    r"nvidia-nvswitch\d+: open|EDAC .*Giving out device|no AER-aware driver|GPU Board Serial|AER: enabled"
)


def strip_stamp(line: str) -> tuple[str, str | None]:
    """(message, host): a kernel line without time stamps, levels and record numbers of any style."""
    host: str | None = None
    text = line.strip()
    while match := _STAMP.match(text):
        host = match["host"] or host
        text = text[match.end() :]
    return text, host


def match_kernel(text: str, line: int = 0, host: str | None = None) -> KernelEvent | None:
    """The event of one message without its time stamp, or None when it says nothing that matters."""
    if not _PREFILTER.search(text) or _HARMLESS.search(text):
        return None
    for kind, word, pattern in PATTERNS:
        if word in text and (match := pattern.search(text)):
            fields = {name: value.strip() for name, value in match.groupdict().items() if value}
            return KernelEvent(kind, line, text.strip(), fields, host)
    return None


def parse_kernel(lines: Iterable[str]) -> Iterator[KernelEvent]:
    """Events of a kernel log, in order. The bit of an AER record stands on a later line and is joined to it; the GPU
    that has fallen off the bus may stand on an earlier one."""
    waiting: KernelEvent | None = None
    subject: Mapping[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text, host = strip_stamp(line)
        subject = found.groupdict() if (found := _SUBJECT.search(text)) else subject
        bit = _BIT.search(text)
        if waiting and bit:
            waiting = KernelEvent(
                "aer", waiting.line, waiting.text, {**waiting.fields, **bit.groupdict()}, waiting.host
            )
            yield waiting
            waiting = None
            continue
        event = match_kernel(text, number, host)
        if event and event.kind == "aer":
            if waiting:
                yield waiting
            waiting = event
        elif event and event.kind == "fallen_off":
            yield replace(event, fields={**subject, **event.fields})
        elif event:
            yield event
    if waiting:
        yield waiting
