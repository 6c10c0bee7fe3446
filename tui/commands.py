"""The commands of the shell that do what the screens do: shown on `c`, and run beside the screen."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from subprocess import PIPE, Popen
from typing import Any

TOOLS = {"dlaunch": "launcher.cli", "ddoctor": "doctor.cli"}


class CommandError(Exception):
    """A command that gave no document; the text is what it said."""


def process_argv(argv: Sequence[str]) -> list[str]:
    """How `dlaunch …` or `ddoctor …` is started with this interpreter, on whatever PATH."""
    tool, *arguments = argv
    return [sys.executable, "-c", f"from {TOOLS[tool]} import main; main()", *arguments]


async def run_text(argv: Sequence[str]) -> tuple[int, str, str]:
    """Run `dlaunch …` or `ddoctor …` in its own process: status and output. Cancelling ends it and its children."""
    # A thread reads the pipes to their end: a loop that ends with the app would leave its own transports open.
    process = Popen(process_argv(argv), stdout=PIPE, stderr=PIPE, start_new_session=True)
    try:
        stdout, stderr = await asyncio.to_thread(process.communicate)
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace")


async def run_json(argv: Sequence[str]) -> dict[str, Any]:
    """The document that a command prints with `--json`. Raises CommandError with its words when there is none."""
    status, stdout, stderr = await run_text([*argv, "--json"])
    try:
        document = json.loads(stdout)
    except ValueError:
        raise CommandError(stderr.strip() or f"{' '.join(argv)} ended with status {status}") from None
    if not isinstance(document, dict) or "error" in document:
        raise CommandError(str(document.get("error", document)) if isinstance(document, dict) else str(document))
    return document
