"""Versions and variables that differ between the processes of a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.evidence.nccl_log import NcclProcess
from doctor.rules import Rule
from doctor.rules.events import events_of, ranks_of, said
from doctor.rules.majority import minority
from doctor.rules.speakers import names, on
from launcher.common.finding import Finding


def versions(evidence: EvidenceSet) -> Iterator[Finding]:
    told = events_of(evidence, "nccl_version_mismatch")
    if told:
        first = told[0]
        pair = (
            f": rank {first['a']} has {first['a_version']}, rank {first['b']} has {first['b_version']}"
            if first["a"]
            else ""
        )
        yield said(
            told,
            "nccl.version_mismatch",
            f"Ranks use different NCCL versions{pair}.",
            _ONE_NCCL,
            0.95,
            ranks=tuple(sorted({int(first[name]) for name in ("a", "b") if first[name]})) or ranks_of(told),
        )
        return
    by_version: defaultdict[str, list[NcclProcess]] = defaultdict(list)
    for process in evidence.of(NcclProcess):
        if process.version:
            by_version[f"{process.library} {process.version}"].append(process)
    if len(by_version) > 1:
        odd = minority(by_version)
        listed = ", ".join(f"{names(found)}: {version}" for version, found in sorted(by_version.items()))
        quote = f"{odd[0].library} version {odd[0].version}"
        cause = f"Processes of the job use different NCCL versions ({listed})."
        yield on(odd, quote, "nccl.version_mismatch", cause, _ONE_NCCL, 0.8)


_ONE_NCCL = "install the same NCCL (the same torch wheel or image) on all nodes; check LD_LIBRARY_PATH and LD_PRELOAD"
# Settings that may well differ between nodes.
_OWN = frozenset(
    ("NCCL_DEBUG_FILE", "NCCL_HOSTID", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_TOPO_FILE", "NCCL_TOPO_DUMP_FILE")
)


def settings(evidence: EvidenceSet) -> Iterator[Finding]:
    """Variables that processes of one job set differently."""
    speakers = [process for process in evidence.of(NcclProcess) if process.settings]
    for name in sorted({name for process in speakers for name in process.settings} - _OWN):
        values: defaultdict[str, list[NcclProcess]] = defaultdict(list)
        for process in speakers:
            values[process.settings.get(name, "not set")].append(process)
        if len(values) > 1 and len(speakers) > 1:
            odd = minority(values)
            listed = ", ".join(f"{value} on {names(found)}" for value, found in sorted(values.items()))
            sure = 0.7 if "not set" not in values else 0.45
            cause = f"{name} differs between ranks: {listed}."
            fix = f"set {name} alike on all ranks (srun --export, mpirun -x, the container's environment)"
            quote = f"{name} set to {odd[0].settings.get(name, 'nothing')}"
            yield on(odd, quote, "env.mismatch", cause, fix, sure, "warning")


RULES = (
    Rule(("nccl.version_mismatch",), ("hang",), versions),
    Rule(("env.mismatch",), ("hang", "straggler"), settings),
)
