"""Versions of Python and of the packages that matter to a job, from the names of their metadata folders.

Nothing is imported, not even importlib.metadata: its e-mail parser would take a third of a whole look at a host.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path

PACKAGES = ("torch", "psutil", "py-spy", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
_METADATA = re.compile(r"(?P<name>[\w.]+)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info")


def node_versions() -> dict[str, str]:
    """name -> version; of a package that is there twice the one that an import would find."""
    versions = {"python": sys.version.split()[0]}
    for folder in sys.path:
        with suppress(OSError):
            for entry in (path.name for path in Path(folder).iterdir()):
                match = _METADATA.fullmatch(entry) if entry.endswith("-info") else None
                name = re.sub(r"[_.]+", "-", match["name"]).lower() if match else ""
                if match and name in PACKAGES:
                    versions.setdefault(name, match["version"])
    return versions
