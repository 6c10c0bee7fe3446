"""A package as pip leaves it: modules and a dist-info in a folder that is then put on the path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, name: str, entry_points: str, modules: Mapping[str, str]) -> None:
    """Version 1.0 of `name` with these entry points, in the form of entry_points.txt."""
    about = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(entry_points)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
