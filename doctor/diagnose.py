"""Run the rules of a question over an EvidenceSet."""

from __future__ import annotations

from doctor.evidence import EvidenceSet
from doctor.rules import Question, rules
from doctor.verdict import judge
from launcher.common.finding import Verdict


def diagnose(evidence: EvidenceSet, question: Question = "diagnose") -> Verdict:
    """The verdict of all rules that answer `question`."""
    chosen = [rule for rule in rules() if rule.answers(question)]
    return judge(question, [finding for rule in chosen for finding in rule.find(evidence)], evidence)
