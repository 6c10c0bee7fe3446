"""What an agent is told on its standard input: the part of a rendered job that concerns its node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class AgentPlan:
    """`directory` is the job's directory on this node; `argv` is torchrun's; `env` may hold secrets."""

    job: str
    host: str
    node_rank: int
    attempt: int
    directory: str
    argv: Sequence[str]
    env: Mapping[str, str]
    workdir: str
    first_rank: int
    nproc: int
    stop_grace_s: float = 30.0

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> AgentPlan:
        return cls(**json.loads(data))
