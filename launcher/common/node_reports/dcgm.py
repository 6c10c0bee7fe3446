"""DCGM: `dcgmi diag` as text and JSON of both schemas, `dcgmi nvlink -e -j` and `--link-status`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DiagResult:
    """One result that is not a pass. A skipped test is none either."""

    category: str
    test: str
    gpu: str | None
    status: str
    text: str | None = None


@dataclass(frozen=True)
class Diagnostic:
    version: str | None
    driver: str | None
    gpus: int | None
    tests: int
    not_pass: Sequence[DiagResult] = ()

    @property
    def passed(self) -> bool:
        return self.tests > 0 and not self.not_pass


def parse_diag_json(text: str) -> Diagnostic:
    """`dcgmi diag -j`. Raises ValueError when the text is not of either schema."""
    document = json.loads(text)
    body = document.get("DCGM GPU Diagnostic") or document.get("DCGM Diagnostic") or document
    if not isinstance(body, dict) or "test_categories" not in body:
        raise ValueError("no test_categories: not a document of dcgmi diag")
    results = list(_results(body["test_categories"]))
    bad = tuple(result for result in results if result.status.lower() != "pass")
    return Diagnostic(body.get("DCGM Version"), body.get("Driver Version Detected"), None, len(results), bad)


def _results(categories: Sequence[Mapping[str, Any]]) -> Iterator[DiagResult]:
    for category in categories:
        for test in category.get("tests", ()):
            summary = [test["test_summary"]] if "test_summary" in test and not test.get("results") else []
            for result in [*test.get("results", ()), *summary]:
                gpu = result.get("gpu_id", result.get("entity_id", result.get("gpu_ids")))
                warnings = result.get("warnings") or result.get("info")
                text = json.dumps(warnings) if isinstance(warnings, list | dict) else warnings
                name = str(category.get("category", "?")), str(test.get("name", "?"))
                yield DiagResult(*name, None if gpu is None else str(gpu), str(result.get("status", "?")), text)


def parse_diag_text(text: str) -> Diagnostic:
    """The table of `dcgmi diag -r N`; messages that wrap over table lines are joined, notes (`Info`) passed over.

    A row may tell of several GPUs (`Pass - GPUs: 0, 1`, below it `Fail - GPU: 2`, or one a line): the worst counts.
    """
    rows: list[tuple[str, str, str]] = []
    category = ""
    for line in map(_bare, text.splitlines()):
        if head := re.match(r"[|+]-+\s+(\w[\w /]*?)\s+-+\+", line):
            category = head[1]
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if len(cells) != 2 or cells == ["Diagnostic", "Result"] or cells[0].startswith("="):
            continue
        if cells[0]:
            rows.append((category, cells[0], cells[1]))
        elif rows:
            rows[-1] = (*rows[-1][:2], f"{rows[-1][2]} {cells[1]}")
    metadata = {name: value for where, name, value in rows if where == "Metadata"}
    tests = [row for row in rows if row[0] != "Metadata" and not row[1].startswith("Info")]
    devices = metadata.get("GPU Device IDs Detected")
    return Diagnostic(
        metadata.get("DCGM Version"),
        metadata.get("Driver Version Detected"),
        len(devices.split(",")) if devices else None,
        len(tests),
        tuple(result for result in (_text_result(*row) for row in tests) if result.status != "Pass"),
    )


def _bare(line: str) -> str:
    """Without what a log, a comment or a quotation put before the table."""
    return re.sub(r"^[^|+]*?(?=[|+])", "", line) if re.match(r"[\s#>]*[|+]", line) else line


_MESSAGE = re.compile(r"(?:Error|Warning)\b")
_WORST_FIRST = ("Fail", "Error", "Warn", "Skip", "Pass")


def _text_result(category: str, test: str, value: str) -> DiagResult:
    said = re.findall(rf"\b({'|'.join(_WORST_FIRST)})\b", value)
    worst = min(said, key=_WORST_FIRST.index, default=value.partition(" ")[0])
    status = "Error" if _MESSAGE.match(test) else worst
    named = re.search(rf"\b{status} - GPUs?: (\d[\d, ]*)|GPU(\d+): {status}\b", value)
    gpu = named or re.search(r"GPU\s*(?:ID)?:?\s*(\d+)", f"{test} {value}")
    which = next((group.strip(" ,") for group in gpu.groups() if group), None) if gpu else None
    return DiagResult(category, test, which, status, re.sub(r"\s+", " ", value))


@dataclass(frozen=True)
class LinkStates:
    up: int = 0
    down: int = 0
    disabled: int = 0
    unsupported: int = 0


_LETTERS = {"U": "up", "D": "down", "X": "disabled", "_": "unsupported"}


def parse_link_status(text: str) -> dict[str, LinkStates]:
    """`dcgmi nvlink --link-status`: entity ("gpu 0") → how many of its links are in which state."""
    states: dict[str, dict[str, int]] = {}
    entity = ""
    for line in text.splitlines():
        if head := re.match(r"\s*(gpu|physicalId|nvSwitch|switch)\w*\s+(\d+):?", line, re.IGNORECASE):
            entity = f"{'gpu' if head[1].lower() == 'gpu' else 'switch'} {head[2]}"
            states[entity] = dict.fromkeys(_LETTERS.values(), 0)
        elif entity and re.fullmatch(r"\s*[UDX_](?:\s+[UDX_])*\s*", line):
            for letter in line.split():
                states[entity][_LETTERS[letter]] += 1
        elif line.startswith("Key"):
            break
    return {name: LinkStates(**counts) for name, counts in states.items()}
