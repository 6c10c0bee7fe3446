"""Processes that speak in NCCL's log, in words, and the finding that they tell of themselves. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.evidence.nccl_log import NcclProcess
from doctor.text import fold_hosts, name_ranks
from launcher.common.finding import Evidence, Finding, Severity


def names(processes: Sequence[NcclProcess]) -> str:
    """The processes in words: ranks where known, else hosts."""
    ranks = sorted({one.rank for one in processes if one.rank is not None})
    hosts = sorted({one.host for one in processes if one.host})
    if ranks:
        return name_ranks(ranks) + (f" on {fold_hosts(hosts)}" if hosts else "")
    return fold_hosts(hosts) or "a process"


def on(
    processes: Sequence[NcclProcess],
    quote: str,
    code: str,
    cause: str,
    fix: str,
    confidence: float,
    severity: Severity = "error",
) -> Finding:
    """A finding on processes: their ranks and hosts, and `quote` at the place where each spoke."""
    return Finding(
        code,
        severity,
        cause,
        fix,
        confidence,
        tuple(sorted({one.rank for one in processes if one.rank is not None})),
        tuple(sorted({one.host for one in processes if one.host})),
        evidence=tuple(Evidence("nccl_log", one.where, quote) for one in processes[:4]),
    )
