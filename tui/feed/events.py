"""events.jsonl as lines for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.agent.tail import Tail
from launcher.common.text import printable
from tui.snapshot import Event


class EventLog:
    """The new events of a job since the last look."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self._rest = b""

    def new(self) -> list[Event]:
        *lines, self._rest = (self._rest + self._tail.new()).split(b"\n")
        found = []
        for line in lines:
            with suppress(ValueError, TypeError, KeyError):
                found.append(to_event(json.loads(line)))
        return found


def to_event(document: Mapping[str, Any]) -> Event:
    """Raises KeyError or TypeError for a document of another form."""
    details = {key: value for key, value in document.items() if key not in ("time", "event")}
    words = " ".join(f"{key}={value}" for key, value in details.items() if value not in (None, "", [], {}))
    return Event(float(document["time"]), printable(f"{document['event']} {words}".strip()).replace("\n", " "))
