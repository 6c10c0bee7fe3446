"""Where no lab can be raised tests skip, but not in CI."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.lab import packages
from tests.lab.require import require_lab


def test_without_root_a_lab_skips_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs root"):
        require_lab(())


def test_in_ci_a_lab_that_cannot_be_raised_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs root"):
        require_lab(())


def test_packages_that_do_not_install_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(wanted: object) -> None:
        raise subprocess.CalledProcessError(100, ["apt-get"])

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(packages, "install", refuse)
    monkeypatch.setattr(packages, "missing", lambda wanted: ["openssh-server"])
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="cannot install openssh-server"):
        require_lab(("openssh-server",))
