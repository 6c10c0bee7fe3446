"""The diagnostic cases that people met: the first finding is one of the right codes, and useful words are in it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from doctor.diagnose import diagnose
from doctor.discover import discover
from launcher.common.finding import Finding, Verdict

CASES = Path(__file__).parents[3] / "shared" / "cases"
REQUIRED_RATE = 0.9

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not beside this checkout")


def expectations() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((CASES / "expected.json").read_text())
    return document


def neutral_copy(case: str, target: Path) -> Path:
    """The evidence alone, without what is known about the case."""
    return Path(shutil.copytree(CASES / case, target / "evidence", ignore=shutil.ignore_patterns("case.json")))


def spoken(finding: Finding) -> str:
    """All that a finding says in its own words, not in quotes."""
    return json.dumps(
        {"cause": finding.cause, "fix": finding.fix, "detail": finding.detail}
        | {"ranks": list(finding.ranks), "hosts": list(finding.hosts)},
        default=str,
        ensure_ascii=False,
    )


def faults(verdict: Verdict, expected: Mapping[str, Any]) -> list[str]:
    """What is wrong with a verdict; empty when it is right."""
    text = "\n".join(spoken(finding) for finding in verdict.findings)
    codes = {finding.code for finding in verdict.findings if finding.severity != "info"} | {verdict.answer}
    first = {verdict.answer} | ({verdict.findings[0].code} if verdict.findings else set())
    wrong = [] if first & set(expected["accept"]) else [f"answers {verdict.answer}, not {expected['accept']}"]
    wrong += [f"does not mention {pattern}" for pattern in expected["must_mention"] if not re.search(pattern, text)]
    return wrong + [f"says {code}" for code in sorted(codes & set(expected["must_not"]))]


def test_the_scored_cases_are_judged_right(tmp_path: Path) -> None:
    wrong, scored, misleading = {}, 0, {}
    for case, expected in sorted(expectations().items()):
        verdict = diagnose(discover([neutral_copy(case, tmp_path / case)]))
        found = faults(verdict, expected)
        if expected["scored"]:
            scored += 1
            if found:
                wrong[f"{case} {expected['name']}"] = found
        if bad := [text for text in found if text.startswith("says ")]:
            misleading[case] = bad
    rate = 1 - len(wrong) / scored
    report = "\n".join(f"{name}: {'; '.join(found)}" for name, found in wrong.items())
    print(f"{scored - len(wrong)} of {scored} scored cases right\n{report}")
    assert not misleading
    assert rate >= REQUIRED_RATE, report


if __name__ == "__main__":
    import sys
    import tempfile

    for name, expected in sorted(expectations().items()):
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            outcome = diagnose(discover([neutral_copy(name, Path(folder) / name)]))
        print(name, expected["tests"], "" if expected["scored"] else "(unscored)", outcome.answer, expected["name"])
        print("    " + ("right" if not (found := faults(outcome, expected)) else "; ".join(found)))
