"""Every code of the list of verdicts is the answer of some rule, and every kind of log line leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from doctor.evidence.signatures import signatures
from doctor.rules import rules
from doctor.rules.meanings import MEANINGS

ROOT = Path(__file__).parents[2]
VERDICTS = ROOT.parent / "shared" / "verdicts.md"
FAMILIES = "hang|bootstrap|init|net|gpu|host|nccl|torch|env|slow|straggler|numeric|data|rng|mesh|cascade|benign"
# Lines that other lines explain, known so that nobody takes them for a warning of their own.
SILENT = {"ib_async_other", "ib_no_device", "shm_unlink"}


def named_in_rules() -> Collection[str]:
    code = "\n".join(path.read_text() for path in (ROOT / "doctor" / "rules").glob("*.py"))
    return set(re.findall(r'"(\w+)"', code))


@pytest.mark.skipif(not VERDICTS.is_file(), reason="the list of verdicts is not beside this checkout")
def test_every_verdict_has_a_rule() -> None:
    listed = set(re.findall(rf"\b(?:{FAMILIES})\.[a-z0-9_]+", VERDICTS.read_text().partition("\n## ")[2]))
    assert len(listed) > 80
    assert listed - {code for rule in rules() for code in rule.codes} == set()


def test_every_kind_of_line_leads_somewhere() -> None:
    kinds = {signature.kind for signature in signatures()}
    assert kinds - set(MEANINGS) - set(named_in_rules()) == SILENT
