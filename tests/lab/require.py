"""The one rule for labs: without root they skip; with CI=true a lab that cannot be raised is a failure."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import NoReturn

import pytest

from tests.lab import packages


def require_lab(wanted: Sequence[str]) -> None:
    """Make sure that a lab can be raised here: root, and the Debian packages `wanted` (installed when missing)."""
    if os.geteuid() != 0:
        unavailable("needs root")
    try:
        packages.install(wanted)
    except (OSError, subprocess.CalledProcessError) as error:
        unavailable(f"cannot install {' '.join(packages.missing(wanted))}: {error}")


def unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"no lab, and CI=true: {reason}", pytrace=False)
    pytest.skip(f"no lab: {reason}")
