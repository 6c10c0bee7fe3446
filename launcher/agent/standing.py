"""In which collective a rank stands that makes no progress: asked of its flight recorder while the standstill lasts.

A rank that moves is not asked: what it says would be over before it is read, and each answer costs it some 10 ms.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.agent.recorder_hook import FIFO, HOOK_SUFFIXES
from launcher.common.progress import Progress
from launcher.common.unpickle import RefusedPickleError, loads

STILL_S = 10.0  # without progress, and
STILL_STEPS = 5.0  # that many of its last step's time
AGAIN_S = 30.0
NOWHERE = "no collective"


def wake(fifo: Path) -> None:
    """Ask the thread behind a rank's FIFO for a dump. Raises OSError where nobody listens."""
    os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))


def answered_at(dump: Path) -> int:
    """When the view, the last file of an answer, was written, in ns since the epoch; 0 where there is none."""
    try:
        return dump.with_name(f"{dump.name}.view.json").stat().st_mtime_ns
    except OSError:
        return 0


class Standing:
    """One rank's standstills. `dump` is the file that its recorder writes when asked."""

    def __init__(self, dump: Path) -> None:
        self._dump = dump
        self._moved: float | None = None
        self._asked: float | None = None
        self._stamp = 0
        self._text: str | None = None

    def look(self, progress: Progress, now: float) -> str | None:
        """Where the rank stands (`all_reduce #26 of default_pg`), None while it moves or has not answered.

        `now` is seconds since the epoch, as `progress.time`.
        """
        moved = progress.time if progress.time is not None else self._moved
        if moved != self._moved or moved is None:
            self._forget()
            self._moved = now if moved is None else moved
        elif now - moved > max(STILL_S, STILL_STEPS * (progress.step_s or 0.0)):
            self._ask(now)
            self._read()
        return self._text

    def _forget(self) -> None:
        """Remove the dump that was asked for, too: of what the rank does later it would tell wrong."""
        if self._asked is not None:
            for suffix in HOOK_SUFFIXES:
                self._dump.with_name(self._dump.name + suffix).unlink(missing_ok=True)
        self._asked, self._text = None, None

    def _ask(self, now: float) -> None:
        if self._asked is not None and now - self._asked < AGAIN_S:
            return
        self._asked, stamp = now, answered_at(self._dump)
        with suppress(OSError):
            wake(self._dump.with_name(FIFO))
            self._stamp = stamp

    def _read(self) -> None:
        written = answered_at(self._dump)
        if written <= self._stamp:
            return
        self._stamp = written
        with suppress(OSError, RefusedPickleError):
            self._text = describe(loads(self._dump.read_bytes()))


def describe(document: Any) -> str | None:
    """The oldest operation that a dump knows as begun and not ended; None where it is no dump."""
    entries = document.get("entries") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        return None
    return next((_words(entry) for entry in entries if _pending(entry)), NOWHERE)


def _pending(entry: Any) -> bool:
    """Gloo's entries stay `scheduled` for ever and say by `retired` that they are over."""
    return isinstance(entry, Mapping) and not entry.get("retired") and entry.get("state") != "completed"


def _words(entry: Mapping[str, Any]) -> str:
    name = str(entry.get("profiling_name", "?")).rpartition(":")[2]
    number = entry.get("p2p_seq_id") if entry.get("is_p2p") else entry.get("collective_seq_id")
    group: Sequence[Any] = entry.get("process_group") or ("?",)
    return f"{name} #{number} of {group[-1] or group[0]}"
