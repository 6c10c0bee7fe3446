"""Entry points of other packages: found by group, and told by name and reason where they cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.common.finding import Finding, unknown
from launcher.common.plugins import PluginFailure, guarded, plugins, telling
from tests.support.installed import install

POINTS = """
[acme.numbers]
two = acme_numbers:TWO
broken = acme_broken:ONE
ends = acme_ends:ONE
gone = acme_numbers:NOTHING_SUCH
wrong = acme_numbers:WORD
[acme.others]
other = acme_numbers:TWO
"""
MODULES = {
    "acme_numbers": "TWO, WORD = 2, 'two'",
    "acme_broken": "import nothing_such_anywhere",
    "acme_ends": "raise SystemExit(3)",
}


def number(loaded: object) -> int:
    if isinstance(loaded, int):
        return loaded
    raise TypeError("it must be a number")


def test_what_fails_is_named_with_its_reason_and_the_rest_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "acme-numbers", POINTS, MODULES)
    monkeypatch.syspath_prepend(tmp_path)
    found, failed = plugins("acme.numbers", number)
    assert [(plugin.value, plugin.origin) for plugin in found] == [(2, "'two' of acme-numbers 1.0 (acme.numbers)")]
    whys = {failure.origin.split("'")[1]: failure.why for failure in failed}
    assert whys == {
        "broken": "ModuleNotFoundError: No module named 'nothing_such_anywhere'",
        "ends": "SystemExit: 3",
        "gone": "AttributeError: module 'acme_numbers' has no attribute 'NOTHING_SUCH'",
        "wrong": "TypeError: it must be a number",
    }
    assert plugins("acme.nobody", number) == ([], [])


def told(failure: PluginFailure, host: str) -> Finding:
    return unknown(f"{host}: {failure}")


def dividing(divisor: int) -> Iterator[Finding]:
    yield Finding("host.disk_full", "error", "full")
    yield Finding("host.disk_full", "error", f"{1 // divisor}")


def test_what_was_found_before_an_error_counts() -> None:
    safe = guarded(dividing, "'x' of acme 1.0", lambda failure, divisor: told(failure, f"n{divisor}"))
    assert [finding.cause for finding in safe(1)] == ["full", "1"]
    assert [finding.cause for finding in safe(0)] == [
        "full",
        "n0: 'x' of acme 1.0 failed: ZeroDivisionError: integer division or modulo by zero",
    ]


@pytest.mark.parametrize("given", [["no finding"], None, 3])
def test_what_is_no_finding_is_an_error(given: object) -> None:
    (finding,) = guarded(lambda host: given, "'x' of acme 1.0", told)("n1")  # type: ignore[arg-type, return-value]
    assert finding.code == "unknown" and "n1: 'x' of acme 1.0 failed: TypeError" in finding.cause


def test_in_the_place_of_what_could_not_be_loaded_stands_why() -> None:
    (finding,) = telling(PluginFailure("'x' of acme 1.0", "ImportError: y"), told)("n1")
    assert finding.cause == "n1: 'x' of acme 1.0 failed: ImportError: y"
