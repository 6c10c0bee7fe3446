"""What torchfrtrace's text says, told apart by the kind of its first error: the later ones follow from it."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.evidence import EvidenceSet
from doctor.evidence.frtrace import TraceError
from doctor.rules import Rule
from doctor.text import name_ranks
from launcher.common.finding import Evidence, Finding, unknown

CODES = {
    "SIZE_OR_SYNTAX_MISMATCH": "hang.shape_mismatch",
    "COLLECTIVE_TYPE_MISMATCH": "hang.desync",
    "COLLECTIVE_DTYPE_MISMATCH": "hang.desync",
}
DUMPS = ("the dumps themselves: ddoctor hang DIR compares all ranks, not each with the first",)


def find_in_trace(evidence: EvidenceSet) -> Iterator[Finding]:
    """One finding for the first collective at fault of each text."""
    first: dict[str, TraceError] = {}
    for error in evidence.of(TraceError):
        first.setdefault(error.where, error)
    for error in first.values():
        yield _finding(error)


def _finding(error: TraceError) -> Finding:
    kinds = {kind for _, kind, _ in error.culprits}
    code = next((CODES[kind] for kind in CODES if kind in kinds), None)
    ranks = tuple(sorted({rank for rank, _, _ in error.culprits} | set(error.missing)))
    what = f"number {error.seq} ({error.op or 'collective'}) of {error.group or 'a group'}"
    seen = [Evidence("torchfrtrace", f"{error.where}:{error.line}", _quote(error))]
    if error.missing and code is None:
        code = "hang.absent_rank"
    if code is None:
        said = ", ".join(sorted(kinds)) or "no kind of error"
        return unknown(
            f"torchfrtrace reports {what} with {said} for {name_ranks(ranks) if ranks else 'no rank'}: a state that "
            "differs shows who was ahead when the dump was made, not why.",
            DUMPS,
            seen,
        )
    texts = sorted({text for _, _, text in error.culprits if text})
    differs = f" differ{'s' if len(ranks) == 1 else ''}" if code != "hang.absent_rank" else " did not come"
    return Finding(
        code,
        "error",
        f"At {what} {name_ranks(ranks)}{differs} (sizes elsewhere {error.sizes or 'unknown'}): {'; '.join(texts[:3])}",
        "Make the tensor equally large on all ranks, and let all ranks make the same calls in the same order.",
        0.8,
        ranks=ranks,
        detail={"seq": error.seq, "group": error.group, "op": error.op},
        evidence=seen,
        missing=DUMPS,
    )


def _quote(error: TraceError) -> str:
    return "; ".join(f"rank {rank} {kind} {text}" for rank, kind, text in error.culprits) or f"missing {error.missing}"


RULES = (Rule(("hang.shape_mismatch", "hang.desync", "hang.absent_rank"), ("hang",), find_in_trace),)
