"""Rules: evidence → findings. Pure; every rule sees the whole EvidenceSet and yields what it is sure of.

To add a rule: write a module in this package with a tuple `RULES` of `Rule(codes, questions, find)`; it is found by
that name, nothing else is to be edited. `find` yields Findings with the codes of `codes`; when it saw something that it
cannot decide it yields `launcher.common.finding.unknown(cause, missing)`: these are joined into one at the end. Where a
time is known put it in `detail["time"]` (seconds since the epoch): the verdict orders causes before victims by it.
Findings of one code for several ranks or hosts should be one Finding with them in `ranks` and `hosts`.
A rule that looked at its evidence and found it healthy yields `healthy(...)`: only then may the answer be `none`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from doctor.evidence import EvidenceSet
from launcher.common.finding import Evidence, Finding

Question = Literal["diagnose", "hang", "straggler", "mesh"]
HEALTHY = "healthy"


@dataclass(frozen=True)
class Rule:
    """One rule. `questions` are those beside `diagnose`, which runs every rule but those of one question `alone`."""

    codes: Sequence[str]
    questions: Sequence[Question]
    find: Callable[[EvidenceSet], Iterable[Finding]]
    alone: bool = False

    def answers(self, question: Question) -> bool:
        return question in self.questions or (question == "diagnose" and not self.alone)


def healthy(what: str, evidence: Iterable[Evidence] = ()) -> Finding:
    """Says that a rule could look and saw nothing wrong: `what` completes "looked at …"."""
    return Finding(HEALTHY, "info", what, evidence=tuple(evidence))


@cache
def rules() -> Sequence[Rule]:
    """All rules of the modules of this package, in the order of the modules' names."""
    modules = (importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    return [rule for module in modules for rule in getattr(module, "RULES", ())]
