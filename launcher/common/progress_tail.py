"""The new records of a progress.jsonl since the last look."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any


class ProgressTail:
    """Reads a growing file of JSON lines; a line that is not finished waits, one that is broken is passed over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def new(self) -> list[dict[str, Any]]:
        """Records since the last call; none while there is no file."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        complete = data.rpartition(b"\n")[0]
        self._offset += len(complete) + (1 if complete else 0)
        records = []
        for line in complete.splitlines():
            with suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    records.append(record)
        return records
