"""One text from several hosts, each line led by its host's name, as `srun -l`, `clush` and `pdsh` print it."""

from __future__ import annotations

import re
from collections import Counter

LED = re.compile(r"([A-Za-z0-9][\w.\-]*):(?:[ \t]|$)(.*)", re.DOTALL)
NO_HOST = re.compile(r"(?:GPU|NPU|NIC|XPU)\d+|Legend|TABLE", re.IGNORECASE)


def split_hosts(text: str, name: str) -> list[tuple[str, str]]:
    """(host, its text) for each leading name, if nearly every line has one; else the whole text under `name`."""
    lines = [line for line in text.splitlines() if line.strip()]
    led = [match for line in lines if (match := LED.match(line)) and not NO_HOST.fullmatch(match[1])]
    counts = Counter(match[1] for match in led)
    if not led or len(led) * 10 < len(lines) * 9 or min(counts.values()) < 2:
        return [(name, text)]
    parts: dict[str, list[str]] = {}
    for match in led:
        parts.setdefault(match[1], []).append(match[2])
    return [(host, "\n".join(body)) for host, body in parts.items()]
