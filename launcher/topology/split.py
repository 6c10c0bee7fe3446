"""One text from several hosts: each line led by its host's name, as `srun -l`, `clush` and `pdsh` print it, or each
host's lines below its name, as `clush -b`, `dshbak`, `pssh`, Ansible and `tail` do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from launcher.errors import InputError
from launcher.hosts.names import expand

LED = re.compile(r"([A-Za-z0-9][\w.\-]*):(?:[ \t]|$)(.*)", re.DOTALL)
NO_HOST = re.compile(r"(?:GPU|NPU|NIC|XPU)\d+|Legend|TABLE", re.IGNORECASE)
HEADS = (
    re.compile(r"(?m)^-{5,}\n([\w.\-\[\],]+)(?: \(\d+\))?\n-{5,}$"),  # clush -b, dshbak
    re.compile(r"(?m)^\[\d+\] [\d:]+ \[\w+\] (\S+)$"),  # pssh
    re.compile(r"(?m)^(\S+) \| [A-Z]+(?: \| rc=\d+)? (?:>>|=>)$"),  # Ansible
    re.compile(r"(?m)^==> (\S+) <==$"),  # tail, head
)


def split_hosts(text: str, name: str) -> list[tuple[str, str]]:
    """(host, its text) for each host that the text names; else the whole text under `name`."""
    return led_by_names(text) or below_names(text) or [(name, text)]


def below_names(text: str) -> list[tuple[str, str]]:
    """The pieces below heads of one kind; a head may name several hosts that said the same."""
    plain = text.replace("\r\n", "\n")
    for head in HEADS:
        matches = list(head.finditer(plain))
        ends = [*(match.start() for match in matches[1:]), len(plain)]
        if pieces := [(match[1], plain[match.end() : end]) for match, end in zip(matches, ends, strict=False)]:
            return [(host, body) for names, body in pieces for host in hosts_of(names)]
    return []


def hosts_of(names: str) -> Sequence[str]:
    try:
        return expand(names)
    except InputError:
        return [names]


def led_by_names(text: str) -> list[tuple[str, str]]:
    """If nearly every line is led by a name."""
    lines = [line for line in text.splitlines() if line.strip()]
    led = [match for line in lines if (match := LED.match(line)) and not NO_HOST.fullmatch(match[1])]
    counts = Counter(match[1] for match in led)
    if not led or len(led) * 10 < len(lines) * 9 or min(counts.values()) < 2:
        return []
    parts: dict[str, list[str]] = {}
    for match in led:
        parts.setdefault(match[1], []).append(match[2])
    return [(host, "\n".join(body)) for host, body in parts.items()]
