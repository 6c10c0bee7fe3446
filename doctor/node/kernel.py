"""The kernel's lines on this node, as far as they may be read."""

from __future__ import annotations

import subprocess

LIMIT = 512_000


def lines() -> tuple[bytes, str]:
    """(the last lines of the kernel's log, why there are none)."""
    try:
        done = subprocess.run(["dmesg", "--time-format", "iso"], capture_output=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired) as error:
        return b"", f"dmesg: {error}"
    if done.returncode or not done.stdout.strip():
        words = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return b"", words or "dmesg shows nothing here"
    return done.stdout[-LIMIT:], ""
