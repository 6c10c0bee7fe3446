"""Ask ranks for their flight recorder's content through their FIFOs (`launcher/agent/recorder_hook.py`)."""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from pathlib import Path

from launcher.agent.recorder_hook import FIFO
from launcher.agent.standing import answered_at, wake

WAKE_S = 0.02
NO_HOOK = "the rank has no trigger (it was not started by dlaunch, or its Python runs with -I, -E or -S)"


def request_dumps(dumps: Mapping[int, Path], patience_s: float) -> tuple[list[int], dict[int, str]]:
    """Ask all ranks at once and wait; returns those that answered, and for the others why not.

    `dumps`: rank → path of its dump, beside which the FIFO and the view lie.
    """
    deadline = time.monotonic() + patience_s
    before = {rank: answered_at(dump) for rank, dump in dumps.items()}
    refused: dict[int, str] = {}
    waiting: dict[int, Path] = {}
    for rank, dump in dumps.items():
        why = _ask(dump.with_name(FIFO), deadline)
        if why:
            refused[rank] = why
        else:
            waiting[rank] = dump
    answered = []
    while waiting and time.monotonic() < deadline:
        done = [rank for rank, dump in waiting.items() if answered_at(dump) != before[rank]]
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
