"""Single values: the numbers of Slurm's JSON, times, durations, exit codes, generic resources."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from launcher.common.binding import index_list

NOTHING = frozenset({"", "N/A", "n/a", "None", "NONE", "(null)", "Unknown", "NOT_SET", "INVALID"})
UNLIMITED = frozenset({"UNLIMITED", "infinite", "INFINITE", "Partition_Limit"})


def number(value: Any) -> float | None:
    """A number of any version's JSON: plain, null, or `{set, infinite, number}`; infinity where it says so."""
    if isinstance(value, dict):
        if value.get("infinite"):
            return math.inf
        return value.get("number") if value.get("set") else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def integer(value: Any) -> int | None:
    found = number(value)
    return None if found is None or math.isinf(found) else int(found)


def words(value: Any) -> list[str]:
    """A state or flag of any version's JSON, a string or a list of strings, as a list."""
    found = [value] if isinstance(value, str) else list(value or ())
    return [str(word).strip() for word in found]


def moment(value: Any) -> float | None:
    """Seconds since the epoch, from JSON or from `2024-11-12T17:16:23` (the cluster's time zone is taken as ours)."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value.strip()).timestamp()
        except ValueError:
            return None
    return number(value) or None  # Slurm writes 0 for a time that has not come


def duration(text: str) -> float | None:
    """`2-05:32:24`, `12:00:00`, `30:00` and `90` (minutes, as sbatch reads it) in seconds; infinity for no limit."""
    text = text.strip()
    if text in UNLIMITED:
        return math.inf
    found = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?(?:\.\d+)?", text)
    if not found:
        return None
    days, *rest = found.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is not None:  # days-hours[:minutes[:seconds]]
        parts += [0] * (3 - len(parts))
    elif len(parts) == 1:
        parts = [0, parts[0], 0]
    hours, minutes, seconds = [0] * (3 - len(parts)) + parts
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


@dataclass(frozen=True)
class ExitCode:
    """How a job or step ended: exit status and signal, 0 for none."""

    status: int
    signal: int = 0

    def __str__(self) -> str:
        return f"signal {self.signal}" if self.signal else f"exit status {self.status}"


def exit_code(value: Any) -> ExitCode | None:
    """`1:0` of the text forms (old ones lack the signal), a wait status, or the JSON object of newer versions."""
    if isinstance(value, str):
        found = re.fullmatch(r"(\d+)(?::(\d+))?", value.strip())
        return ExitCode(int(found.group(1)), int(found.group(2) or 0)) if found else None
    if isinstance(value, dict) and "return_code" in value:
        signal = value.get("signal") or {}
        return ExitCode(integer(value["return_code"]) or 0, integer(signal.get("id", signal.get("signal_id"))) or 0)
    status = integer(value)
    return None if status is None else ExitCode(status >> 8, status & 0x7F)


@dataclass(frozen=True)
class Gres:
    """A generic resource on a node: `gpu:h100:4(IDX:0-3)`. `indexes` is None where the text does not name them."""

    name: str
    model: str
    count: int
    indexes: tuple[int, ...] | None = None


def generic_resources(text: str) -> list[Gres]:
    """Read `gpu:h100:2,gpu:h200:4(S:0-1)` and `gres/gpu=8`; what is no resource is passed over."""
    found: list[Gres] = []
    if text.strip() in NOTHING:
        return found
    for match in re.finditer(r"(?:gres[/:])?([A-Za-z]\w*)((?:[:=][\w.\-]+)*)(\([^()]*\))?(?:,|$)", text.strip()):
        name, rest, where = match.groups()
        parts = re.split("[:=]", rest)[1:]
        count = parts.pop() if parts and re.fullmatch(r"\d{1,18}(?:\.\d+)?[KMGTkmgt]?", parts[-1]) else "1"
        found.append(Gres(name, ":".join(parts), _count(count), _indexes(where)))
    return found


def _count(text: str) -> int:
    scale = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}.get(text[-1].upper(), 1)
    return int(float(text.rstrip("KMGTkmgt")) * scale)


def _indexes(where: str | None) -> tuple[int, ...] | None:
    found = re.fullmatch(r"\(IDX:(.*)\)", where or "")
    return None if not found else tuple(index_list(found.group(1)))
