"""Run the rules of a question over an EvidenceSet."""

from __future__ import annotations

from dataclasses import replace

from doctor.evidence import EvidenceSet
from doctor.rules import Question, rules
from doctor.rules.fleet import fleet_of
from doctor.verdict import judge
from launcher.common.finding import Finding, Verdict


def diagnose(evidence: EvidenceSet, question: Question = "diagnose") -> Verdict:
    """The verdict of all rules that answer `question`."""
    chosen = [rule for rule in rules() if rule.answers(question)]
    return judge(question, [_placed(finding, evidence) for rule in chosen for finding in rule.find(evidence)], evidence)


def _placed(finding: Finding, evidence: EvidenceSet) -> Finding:
    """With the hosts and coordinates of its ranks, where the rule tells no others."""
    if not finding.ranks:
        return finding
    fleet = evidence.once(fleet_of)
    return replace(
        finding,
        hosts=finding.hosts or fleet.hosts_of(finding.ranks),
        coordinates=finding.coordinates or fleet.coordinates_of(finding.ranks),
    )
