"""Arrows point down only: who may import whom."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = {"launcher", "doctor", "workloads", "tui"}
FORBIDDEN = {
    "workloads": {"launcher", "doctor", "tui"},
    "launcher": {"doctor", "tui"},
    "doctor": {"tui"},
    "tui": set(),
}
NODE_SIDE = ("launcher/agent", "launcher/common", "doctor/node", "doctor/evidence")
NODE_SIDE_MAY = ("launcher.common", "launcher.agent", "doctor.node", "doctor.evidence", "psutil")


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imports(path: Path, top_level_only: bool = False) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


@pytest.mark.parametrize("path", sources(*sorted(OURS)), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_imports_upward(path: Path) -> None:
    layer, in_cli = path.relative_to(ROOT).parts[0], "cli" in path.relative_to(ROOT).parts
    for module in imports(path):
        top = module.split(".")[0]
        assert in_cli or top not in FORBIDDEN[layer], f"{path} imports {module}"
        assert in_cli or "cli" not in module.split("."), f"{path} imports a cli: {module}"


@pytest.mark.parametrize("path", sources(*NODE_SIDE), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_node_side_needs_nothing_but_psutil(path: Path) -> None:
    for module in imports(path, top_level_only=True):
        allowed = module.split(".")[0] in sys.stdlib_module_names or module.startswith(NODE_SIDE_MAY)
        assert allowed, f"{path} imports {module}"


def test_starting_a_command_line_imports_nothing_heavy() -> None:
    import subprocess

    code = (
        "import sys; import launcher.cli, doctor.cli\n"
        "print([m for m in ('torch', 'textual', 'submitit', 'fabric', 'pydantic', 'numpy') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
