"""Known bugs of the libraries as data: versions, what shows it, reference, fix. And variables left from debugging."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from doctor.evidence import EvidenceSet
from doctor.evidence.nccl_log import NcclProcess
from doctor.evidence.rank_table import RankTable
from doctor.evidence.ras import RasReport
from doctor.evidence.stacks import Stack
from doctor.rules import Rule, healthy
from doctor.rules.events import events_of, quotes, said, who
from launcher.common.finding import Evidence, Finding

Version = tuple[int, ...]


@dataclass(frozen=True)
class KnownBug:
    """A bug in versions `since` ≤ v < `fixed` (None: open; the next minor version where no fix is known to us).

    It shows in a stack frame, a log line, or a setting.
    """

    title: str
    since: Version
    fixed: Version | None
    reference: str
    fix: str
    stack: str = ""  # pattern over the frames of one thread, joined by " < "
    event: str = ""  # kind of a log event
    setting: tuple[str, str] = ("", "")  # name and value as the log prints it

    def covers(self, version: Version) -> bool:
        return self.since <= version and (self.fixed is None or version < self.fixed)


BUGS: Sequence[KnownBug] = (
    KnownBug(
        "the proxy's pool of operations is exhausted before they are posted: caller and progress thread wait for each"
        " other",
        (2, 28, 0),
        (2, 29, 3),
        "NVIDIA/nccl#2353",
        "NCCL 2.29.3 or later",
        stack=r"ncclLocalOpAppend",
    ),
    KnownBug(
        "communicators hang in abort",
        (2, 25, 0),
        (2, 26, 0),
        "NVIDIA/nccl 2.25.1",
        "another NCCL than 2.25",
        stack=r"ncclCommAbort|commReclaim",
    ),
    KnownBug(
        "tear-down hangs in destroy or abort",
        (2, 23, 4),
        (2, 24, 0),
        "NVIDIA/nccl 2.23.4",
        "another NCCL than 2.23.4",
        stack=r"ncclCommDestroy|ncclCommFinalize|ncclCommAbort",
    ),
    KnownBug(
        "all-to-all deadlocks while it connects with cuMem",
        (2, 19, 0),
        (2, 20, 0),
        "NVIDIA/nccl#1116",
        "NCCL_CUMEM_ENABLE=0, or another NCCL than 2.19",
        setting=("NCCL_CUMEM_ENABLE", "1"),
    ),
    KnownBug(
        "the kernel launch blocks before the proxy has its work under CUDA_LAUNCH_BLOCKING=1",
        (2, 13, 0),
        (2, 14, 0),
        "NVIDIA/nccl#750",
        "unset CUDA_LAUNCH_BLOCKING, or a later NCCL than 2.13",
        event="blocking_env",
    ),
    KnownBug(
        "host memory by cuMem fails without P2P",
        (2, 24, 0),
        (2, 27, 5),
        "NVIDIA/nccl#1838",
        "NCCL_CUMEM_HOST_ENABLE=0, or a later NCCL",
        event="p2p_unsupported",
    ),
)


# Kind of line → the variable that it tells.
LEFTOVERS = {
    "blocking_env": "CUDA_LAUNCH_BLOCKING=1 serialises every kernel launch",
    "debug_detail": "TORCH_DISTRIBUTED_DEBUG=DETAIL checks every collective through another group",
}


def version_of(text: str) -> Version:
    """(2, 21, 5) of "2.21.5+cuda12.4"."""
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])


def versions(evidence: EvidenceSet) -> set[Version]:
    """NCCL's, as its log, RAS or a dump tells them."""
    told = [one.version for one in evidence.of(NcclProcess)] + [report.version for report in evidence.of(RasReport)]
    told += [table.library_version for table in evidence.of(RankTable) if "nccl" in table.library]
    return {version_of(version) for version in told if version}


def bugs(evidence: EvidenceSet) -> Iterator[Finding]:
    """A bug is named when it shows; surely only where the version is told and affected."""
    known = evidence.once(versions)
    for bug in BUGS:
        quotes_ = _signs(bug, evidence)
        if not quotes_ or (known and not any(bug.covers(version) for version in known)):
            continue
        if not known and not bug.stack:
            continue
        until = "" if bug.fixed is None else f" before {'.'.join(map(str, bug.fixed))}"
        since = ".".join(map(str, bug.since))
        shown = f" ({bug.stack.split('|')[0]} in a stack)" if bug.stack else ""
        yield Finding(
            "nccl.known_bug",
            "error" if known else "warning",
            f"NCCL from {since}{until} has a bug that looks like this{shown}: {bug.title}."
            + ("" if known else " The version is not known here."),
            f"{bug.fix} ({bug.reference})",
            0.8 if known else 0.4,
            detail={"reference": bug.reference, "since": since},
            evidence=quotes_,
            missing=() if known else ("the NCCL version (NCCL_DEBUG=VERSION)",),
        )


def _signs(bug: KnownBug, evidence: EvidenceSet) -> tuple[Evidence, ...]:
    """Where a bug shows."""
    if bug.stack:
        threads = [(stack, thread) for stack in evidence.of(Stack) for thread in stack.threads]
        hits = [
            (stack.where, " < ".join(map(str, thread.frames[:6])))
            for stack, thread in threads
            if re.search(bug.stack, " < ".join(map(str, thread.frames)))
        ]
        return tuple(Evidence("stack", where, text) for where, text in hits[:4])
    if bug.event:
        return quotes(events_of(evidence, bug.event))
    name, value = bug.setting
    speakers = [one for one in evidence.of(NcclProcess) if one.settings.get(name) == value]
    return tuple(Evidence("nccl_log", one.where, f"{name} set to {value}") for one in speakers[:4])


def leftovers(evidence: EvidenceSet) -> Iterator[Finding]:
    """Variables that were set to debug and slow the job down or change what it does."""
    for kind, what in LEFTOVERS.items():
        if lines := events_of(evidence, kind):
            yield said(
                lines,
                "env.debug_leftover",
                f"A debugging variable is set on {who(lines)}: {what}.",
                "unset it",
                0.45,
                "warning",
            )


def harmless(evidence: EvidenceSet) -> Iterator[Finding]:
    """Warnings that are normal."""
    found = events_of(evidence, "device_guess", "pg_not_destroyed", "simple_order")
    if found:
        yield said(
            found,
            "benign.warning_only",
            f"{who(found)} prints warnings that are harmless by themselves.",
            "pass device_id to init_process_group; call destroy_process_group at the end",
            0.8,
            "info",
        )
    connected = [
        one
        for one in evidence.of(NcclProcess)
        if any(comm.complete for comm in one.comms) or (one.connected and not one.comms)
    ]
    if connected:
        yield healthy(f"NCCL logs: {len(connected)} processes connected all their rings")


RULES = (
    Rule(("nccl.known_bug",), ("hang",), bugs),
    Rule(("env.debug_leftover",), ("straggler",), leftovers),
    Rule(("benign.warning_only",), (), harmless),
)
