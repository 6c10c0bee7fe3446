"""Join the findings of all rules into one verdict: causes before victims, no doubles, `unknown` where blind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from doctor.evidence import EvidenceSet
from doctor.rules import HEALTHY, PLUGIN_FAILED, RULE_FAILED, Question
from launcher.common.finding import SEVERITIES, Evidence, Finding, Verdict, unknown

UNSURE = 0.5  # below this a finding never stands before a surer one
SKEW_S = 2.0  # clocks of hosts may differ by this much: closer times say nothing about order
MAX_EVIDENCE = 12

# What explains what: an earlier tier is the cause of a later one when both are there.
TIERS: Sequence[Sequence[str]] = (
    ("gpu.", "host."),
    ("bootstrap.", "init."),
    ("net.", "mesh.", "rng.", "data.", "nccl.", "torch.", "env."),
    ("hang.", "numeric."),
    ("hang.stalled_collective",),
    ("straggler.", "slow."),
    ("cascade.",),
    ("benign.",),
)


def judge(question: Question, findings: Iterable[Finding], evidence: EvidenceSet) -> Verdict:
    """The verdict on `question` from the findings of its rules."""
    found = list(findings)
    stated = [one for one in found if one.code not in (HEALTHY, "unknown")]
    ordered = sorted(merge(stated), key=order_key)
    if any(one.severity != "info" for one in ordered):
        return Verdict(question, tuple(ordered))
    doubt = _doubt(found, evidence)
    return Verdict(question, (*ordered, *([doubt] if doubt else ())))


def merge(findings: Iterable[Finding]) -> list[Finding]:
    """Findings of one code with one cause become one, with the ranks, hosts and evidence of all."""
    same: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        same[finding.code, finding.cause].append(finding)
    return [_joined(group) for group in same.values()]


def order_key(finding: Finding) -> tuple[int, bool, int, float, float, str, str]:
    """Severity, sureness, tier of causes, time in steps of the clock skew, confidence, then text for stability."""
    time = finding.detail.get("time")
    when = round(time / SKEW_S) if isinstance(time, (int, float)) else float("inf")
    return (
        -SEVERITIES.index(finding.severity),
        finding.confidence < UNSURE,
        tier(finding.code),
        when,
        -finding.confidence,
        finding.code,
        finding.cause,
    )


def tier(code: str) -> int:
    """Position of a code among causes and victims; the longest matching prefix counts."""
    matches = [
        (len(prefix), level) for level, prefixes in enumerate(TIERS) for prefix in prefixes if code.startswith(prefix)
    ]
    return max(matches)[1] if matches else len(TIERS)


def _joined(group: Sequence[Finding]) -> Finding:
    first = max(group, key=lambda one: (one.confidence, str(one.detail)))
    evidence: dict[Evidence, None] = {piece: None for one in group for piece in one.evidence}
    return replace(
        first,
        ranks=tuple(sorted({rank for one in group for rank in one.ranks})),
        hosts=tuple(sorted({host for one in group for host in one.hosts})),
        coordinates=tuple(dict.fromkeys(label for one in group for label in one.coordinates)),
        evidence=tuple(evidence)[:MAX_EVIDENCE],
        missing=tuple(dict.fromkeys(text for one in group for text in one.missing)),
    )


def _doubt(found: Sequence[Finding], evidence: EvidenceSet) -> Finding | None:
    """The one `unknown`, or None when a rule looked, saw nothing wrong, and nothing blinds."""
    doubts = [one for one in found if one.code == "unknown"]
    moves = any(one.code == "hang.none_slow" for one in found)
    blind = [gap for gap in evidence.gaps if gap.blinding and not (moves and gap.where.startswith("dump of"))]
    looked = any(one.severity == "info" and one.code not in ("unknown", PLUGIN_FAILED) for one in found)
    if looked and not doubts and not blind and not any(one.code == RULE_FAILED for one in found):
        return None
    causes = [one.cause for one in doubts] or [_what_was_read(evidence, blind)]
    missing = [text for one in doubts for text in one.missing] + [str(gap) for gap in blind]
    pieces = [piece for one in doubts for piece in one.evidence]
    return unknown(" ".join(dict.fromkeys(causes)), dict.fromkeys(missing or _USUAL), pieces[:MAX_EVIDENCE])


def _what_was_read(evidence: EvidenceSet, blind: Sequence[object]) -> str:
    if blind:
        return f"{len(blind)} of the files or sources could not be read as far as needed."
    if not len(evidence):
        return "No evidence was recognised in what was given."
    kinds = ", ".join(sorted(kind.__name__ for kind in evidence.kinds))
    return f"What was given ({kinds}) does not decide it."


_USUAL = (
    "flight recorder dumps of all ranks (TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_ON_TIMEOUT=1)",
    "stacks of all ranks (py-spy dump --pid PID, or ddoctor collect JOB)",
)
