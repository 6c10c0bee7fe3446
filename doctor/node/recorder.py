"""Ask ranks for their flight recorder's content through their FIFOs (`launcher/agent/recorder_hook.py`)."""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from pathlib import Path

from launcher.agent.recorder_hook import FIFO
from launcher.agent.standing import wake

WAKE_S = 0.02
NO_HOOK = "the rank has no trigger (it was not started by dlaunch, or its Python runs with -I, -E or -S)"


def request_dumps(prefixes: Mapping[int, str], patience_s: float) -> tuple[list[int], dict[int, str]]:
    """Ask all ranks at once and wait; returns those that answered, and for the others why not.

    `prefixes`: rank → path of its dump, beside which the FIFO and the view lie.
    """
    deadline = time.monotonic() + patience_s
    before = {rank: _stamp(prefix) for rank, prefix in prefixes.items()}
    refused: dict[int, str] = {}
    waiting: dict[int, str] = {}
    for rank, prefix in prefixes.items():
        why = _ask(Path(prefix).parent / FIFO, deadline)
        if why:
            refused[rank] = why
        else:
            waiting[rank] = prefix
    answered = []
    while waiting and time.monotonic() < deadline:
        done = [rank for rank, prefix in waiting.items() if _stamp(prefix) != before[rank]]
        answered += done
        for rank in done:
            del waiting[rank]
        time.sleep(WAKE_S if waiting else 0)
    silent = f"did not answer within {patience_s:.0f} s: stopped, or its interpreter's lock is held"
    return sorted(answered), refused | dict.fromkeys(waiting, silent)


def _ask(fifo: Path, deadline: float) -> str:
    """Wake the thread behind a FIFO; why it was not possible, or an empty text."""
    while True:
        try:
            wake(fifo)
        except FileNotFoundError:
            return NO_HOOK
        except OSError as error:
            if error.errno != errno.ENXIO:
                return str(error)
            if time.monotonic() > deadline:
                return "its trigger does not listen: the process has ended, or is still busy with an earlier request"
            time.sleep(WAKE_S)
        else:
            return ""


def _stamp(prefix: str) -> int:
    try:
        return Path(f"{prefix}.view.json").stat().st_mtime_ns
    except OSError:
        return 0
