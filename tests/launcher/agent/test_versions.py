"""Versions by folder names are those of importlib.metadata, also where a package is there twice."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from launcher.agent.versions import node_versions


def test_they_are_those_of_the_package_metadata() -> None:
    versions = node_versions()
    for name in ("torch", "psutil", "py-spy"):
        assert versions[name] == metadata.version(name)


@pytest.mark.parametrize(
    ("folder", "name", "version"),
    [
        ("torch-9.1.0+cu128.dist-info", "torch", "9.1.0+cu128"),
        ("nvidia_nccl_cu12-2.27.5.dist-info", "nvidia-nccl-cu12", "2.27.5"),
        ("py_spy-0.3-py3.11.egg-info", "py-spy", "0.3"),
    ],
)
def test_the_first_on_the_path_counts(
    folder: str, name: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / "torchvision-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert node_versions()[name] == version
