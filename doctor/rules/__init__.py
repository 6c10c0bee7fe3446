"""Rules: evidence → findings. Pure; every rule sees the whole EvidenceSet and yields what it is sure of.

To add a rule: write a module in this package with a tuple `RULES` of `Rule(codes, questions, find)`; it is found by
that name, nothing else is to be edited. `find` yields Findings with the codes of `codes`; when it saw something that it
cannot decide it yields `launcher.common.finding.unknown(cause, missing)`: these are joined into one at the end. Where a
time is known put it in `detail["time"]` (seconds since the epoch): the verdict orders causes before victims by it.
Findings of one code for several ranks or hosts should be one Finding with them in `ranks` and `hosts`.
A rule names ranks; their hosts and coordinates are added behind all rules (`doctor.diagnose`).
A rule that looked at its evidence and found it healthy yields `healthy(...)`: only then may the answer be `none`.
A package that is installed beside dlaunch names such a tuple `RULES` as an entry point of the group `dlaunch.rules`.

Modules without `RULES` hold what rules share: log lines by kind (`events`), the dumps of all ranks joined (`fleet`),
who waits for whom (`waits`), where calls part (`align`), who comes last (`arrival`), where stacks stand and why a rank
is late (`places`, `suspects`), who differs from most (`majority`), what lines mean, as data (`meanings` and its parts).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal, get_args

from doctor.evidence import EvidenceSet
from launcher.common.finding import Evidence, Finding
from launcher.common.plugins import PluginFailure, guarded, plugins, telling

Question = Literal["diagnose", "hang", "straggler", "mesh"]
HEALTHY = "healthy"
PLUGIN_FAILED, RULE_FAILED = "plugin.failed", "doctor.rule_failed"


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
    """All rules of the modules of this package, in the order of the modules' names, then those of plug-ins."""
    modules = (importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    return [*(_ours(rule) for module in modules for rule in getattr(module, "RULES", ())), *_of_plugins()]


def _ours(rule: Rule) -> Rule:
    """A rule that fails on damaged evidence leaves the others their say."""
    return replace(rule, find=guarded(rule.find, rule.find.__name__, _OURS_FAILED))


def _of_plugins() -> Iterator[Rule]:
    """A plug-in that fails becomes a rule that says so; nothing else changes by it."""
    found, failed = plugins("dlaunch.rules", _as_rules)
    for plugin in found:
        yield from (replace(rule, find=guarded(rule.find, plugin.origin, _PLUGIN_FAILED)) for rule in plugin.value)
    for failure in failed:
        yield Rule((PLUGIN_FAILED,), get_args(Question), telling(failure, _PLUGIN_FAILED))


def _as_rules(loaded: object) -> Sequence[Rule]:
    if isinstance(loaded, (tuple, list)) and all(isinstance(one, Rule) for one in loaded):
        return loaded
    raise TypeError("it must be a tuple of doctor.rules.Rule")


def _failed(code: str, what: str, fix: str, missing: str, failure: PluginFailure, evidence: EvidenceSet) -> Finding:
    """That a rule failed, for information: `missing` is what is not known now, of the origin in its braces."""
    return Finding(code, "info", f"{what} {failure}.", fix, missing=(missing.format(failure.origin),))


_OURS_FAILED = partial(
    _failed, RULE_FAILED, "The rule", "Tell us, with the evidence: ddoctor collect --anonymize.", "what {} finds"
)
_PLUGIN_FAILED = partial(
    _failed, PLUGIN_FAILED, "The plug-in", "Upgrade or uninstall that package.", "what the rules of {} find"
)
