"""Devices and hosts from kernel logs and node tools: Xids, ECC, NVLink, fabric, PCIe, memory, ports, clocks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from doctor.evidence import EvidenceSet
from doctor.evidence.job import JobFacts
from doctor.evidence.logs import KernelRecord
from doctor.evidence.processes import ProcessState
from doctor.rules import Rule
from doctor.rules.kernel_meanings import KERNEL_MEANINGS
from doctor.rules.network import RESOURCES
from launcher.common.finding import Evidence, Finding
from launcher.common.kernel_lines import KernelEvent
from launcher.common.xids import CODES
from launcher.common.xids import meaning as meaning_of_xid

CLOCK_S = 60.0  # by which the kernel's clock and the job's may differ
_OF_A_PROCESS = ("segfault", "oom_killed", "oom_detail", "hung_task", "soft_lockup")
_CAUSED = re.compile(r"caused by previous Xid (\d+)")


def quotes(records: Sequence[KernelRecord]) -> tuple[Evidence, ...]:
    return tuple(Evidence("kernel", record.where, record.event.text) for record in records[:6])


def hosts(records: Sequence[KernelRecord]) -> tuple[str, ...]:
    return tuple(sorted({record.host for record in records if record.host}))


def kernel_records(evidence: EvidenceSet) -> Sequence[KernelRecord]:
    """Those that may concern the job: the kernel's log keeps what befell other processes, before it and beside it."""
    seen = evidence.of(ProcessState)
    all_live = bool(seen) and not any(state.dead for state in seen)
    starts = [job.started for job in evidence.of(JobFacts) if job.started is not None]
    began = min(starts, default=0.0) - CLOCK_S

    def is_foreign(record: KernelRecord) -> bool:
        crashed_beside = record.event.kind == "segfault" and all_live
        return _of_a_process(record) and (crashed_beside or (record.time is not None and record.time < began))

    return [record for record in evidence.of(KernelRecord) if not is_foreign(record)]


def _of_a_process(record: KernelRecord) -> bool:
    """Whether it tells of one process, not of a device or a host, which stay as they are until somebody mends them."""
    xid = record.event.xid
    return record.event.kind in _OF_A_PROCESS or (xid is not None and meaning_of_xid(xid).kind == "application")


def xids(evidence: EvidenceSet) -> Iterator[Finding]:
    """One finding per Xid number, with its devices and sub-codes. Xid 45 alone is a job being torn down; where it
    names another Xid as its cause, it is told as that one."""
    by_number: defaultdict[int, list[KernelRecord]] = defaultdict(list)
    for record in evidence.once(kernel_records):
        if record.event.xid is not None:
            cause = _CAUSED.search(record.event.text)
            by_number[int(cause[1]) if cause else record.event.xid].append(record)
    for number, found in sorted(by_number.items()):
        known = meaning_of_xid(number)
        devices = sorted({record.event["bus"] for record in found})
        gpus = sorted({match[0] for one in found if (match := re.search(r"\bGPU ?\d+\b", one.event["what"]))})
        codes = sorted({record.event.sub_code for record in found if record.event.sub_code is not None})
        fatal = [one for one in found if " Fatal " in one.event.text]
        subs = ", sub-code " + ", ".join(f"{number}.{code}" for code in codes) if codes else ""
        gravity = " (fatal)" if fatal else ""
        named = f" ({', '.join(gpus)})" if gpus else ""
        severe = known.fatal or bool(fatal) or any(_CAUSED.search(one.event.text) for one in found)
        yield Finding(
            known.code,
            "error" if severe else "info",
            f"Xid {number}{subs}{gravity} on {', '.join(devices)}{named}: {known.text}.",
            known.action,
            0.9 if known.kind != "application" else 0.65,
            hosts=hosts(found),
            detail={"xid": number, "sub_codes": codes, "devices": devices, "lines": len(found)},
            evidence=quotes(found),
        )


def kernel(evidence: EvidenceSet) -> Iterator[Finding]:
    """Lines that mean one thing, together those of one device."""
    groups: defaultdict[tuple[str, str], list[KernelRecord]] = defaultdict(list)
    for record in evidence.once(kernel_records):
        if record.event.kind in KERNEL_MEANINGS and not _told_as_xid(record, evidence):
            groups[record.event.kind, record.event["bus"] or record.event["device"]].append(record)
    for (kind, _), found in groups.items():
        meaning = KERNEL_MEANINGS[kind]
        yield Finding(
            meaning.code,
            meaning.severity,
            meaning.cause.format_map(_words(found[0].event)),
            meaning.fix,
            meaning.confidence,
            hosts=hosts(found),
            detail={"lines": len(found), "kind": kind},
            evidence=quotes(found),
        )


def _words(event: KernelEvent) -> Mapping[str, str]:
    """The event's fields, resources of an adapter by their names; `?` for what the line does not tell."""
    words = defaultdict(lambda: "?", event.fields)
    words["resource"] = RESOURCES.get(words["what"].lower(), words["what"])
    if made := RESOURCES.get(words["command"].partition("_")[2].lower()):
        words["command"] += f", {made}"
    return words


def _told_as_xid(record: KernelRecord, evidence: EvidenceSet) -> bool:
    """The driver tells a lost GPU as Xid 79 too, where it still can."""
    return record.event.kind == "fallen_off" and any(one.event.xid == 79 for one in evidence.of(KernelRecord))


def memory(evidence: EvidenceSet) -> Iterator[Finding]:
    """Processes that the kernel killed, memory errors of the host, tasks that hang in the kernel."""
    records = evidence.once(kernel_records)
    killed = [
        one
        for one in records
        if one.event.kind == "oom_killed" or (one.event.kind == "oom_detail" and one.event["pid"])
    ]
    if killed:
        names = sorted({f"{one.event['name']} (pid {one.event['pid']})" for one in killed})
        yield Finding(
            "host.oom_killed",
            "error",
            f"The kernel killed {', '.join(names[:6])} for want of memory.",
            "ask for more host memory or raise the cgroup's limit; fewer data loader workers; load checkpoints with"
            " mmap",
            0.9,
            hosts=hosts(killed),
            detail={"processes": names},
            evidence=quotes(killed),
        )
    fatal = [one for one in records if one.event.kind == "edac" and one.event["class"] == "UE"]
    if fatal:
        yield Finding(
            "host.pcie_errors",
            "warning",
            f"Uncorrectable errors of host memory at {', '.join(sorted({one.event['dimm'] for one in fatal}))}.",
            "drain the node and replace the memory module",
            0.8,
            hosts=hosts(fatal),
            detail={"kind": "edac"},
            evidence=quotes(fatal),
        )
    hung = [one for one in records if one.event.kind in ("hung_task", "soft_lockup")]
    if hung:
        tasks = ", ".join(sorted({f"{one.event['name']} (pid {one.event['pid']})" for one in hung})[:6])
        yield Finding(
            "hang.absent_rank",
            "warning",
            f"Tasks hang in the kernel: {tasks}.",
            "cat /proc/PID/stack of such a task tells where: file system, driver or memory",
            0.45,
            hosts=hosts(hung),
            detail={"sub_cause": "stopped"},
            evidence=quotes(hung),
        )


def pcie(evidence: EvidenceSet) -> Iterator[Finding]:
    groups: defaultdict[str, list[KernelRecord]] = defaultdict(list)
    for record in evidence.of(KernelRecord):
        if record.event.kind == "aer":
            groups[record.event["port"]].append(record)
    for port, found in groups.items():
        fatal = [one for one in found if one.event["severity"].startswith(("Uncorrected", "Uncorrectable"))]
        what = sorted({one.event["name"] or one.event["type"] for one in fatal or found})
        yield Finding(
            "host.pcie_errors",
            "error" if fatal else "warning",
            f"PCIe port {port} reports {'uncorrected' if fatal else 'corrected'} errors ({', '.join(what)}).",
            "reseat or replace what sits below this port; check risers and power",
            0.85 if fatal else 0.5,
            hosts=hosts(found),
            detail={"port": port, "lines": len(found)},
            evidence=quotes(found),
        )


RULES = (
    Rule((*sorted(set(CODES.values())), "gpu.xid"), ("hang",), xids),
    Rule(tuple(sorted({meaning.code for meaning in KERNEL_MEANINGS.values()})), ("hang", "straggler"), kernel),
    Rule(("host.oom_killed", "host.pcie_errors", "hang.absent_rank"), ("hang",), memory),
    Rule(("host.pcie_errors",), ("hang", "straggler"), pcie),
)
