"""Fire drills: what can be made to go wrong at a chosen rank and step. Pure data and parsing, importable without torch.

`--fault slow_compute:rank=3,step=5,seconds=0.5` — off unless asked, the same every time.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """One kind of fault: the point of the loop where it acts, what it does, and its parameters' defaults."""

    name: str
    point: str  # start, data, step, backward, reduce, gradients, checkpoint, end
    text: str
    defaults: dict[str, str] = field(default_factory=dict)


_COMMON = {"rank": "1", "step": "5"}
KINDS: dict[str, Kind] = {}


@dataclass(frozen=True)
class Fault:
    """One fault as asked for."""

    kind: Kind
    settings: dict[str, str]

    @property
    def rank(self) -> int:
        return int(self.settings["rank"])

    @property
    def step(self) -> int:
        return int(self.settings["step"])


def parse_fault(text: str) -> Fault | None:
    """Read `KIND[:key=value,…]`; None for an empty text. Raises ValueError naming the unknown kind or key."""
    if not text:
        return None
    name, _, rest = text.partition(":")
    if name not in KINDS:
        raise ValueError(f"fault: {name!r} is none of {', '.join(KINDS)}")
    settings = {**_COMMON, **KINDS[name].defaults}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in settings:
            raise ValueError(f"fault: {name} has no {key!r}, only {', '.join(settings)}")
        settings[key] = value
    return Fault(KINDS[name], settings)
